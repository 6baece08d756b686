// An identity provider for tests: users, keys and times of life come from files and arguments.
//   node oidc_provider.mjs PORT USERS.json KEYS.json REDIRECT…
import { readFileSync } from 'node:fs'
import Provider from 'oidc-provider'

const [port, users, keys, ...redirects] = process.argv.slice(2)
const find = async (_, id) => {
  const claims = JSON.parse(readFileSync(users))[id]
  return claims && { accountId: id, claims: async () => ({ sub: id, ...claims }) }
}
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'horae', client_secret: 'hush', redirect_uris: redirects, response_types: ['code'],
    grant_types: ['authorization_code', 'refresh_token'],
  }],
  claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email'], groups: ['groups'] },
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  conformIdTokenClaims: process.env.CLAIMS === 'userinfo',  // then the ID token says no more than who it is
  pkce: { required: () => true },
  jwks: { keys: JSON.parse(readFileSync(keys)) },
  findAccount: find,
  features: { devInteractions: { enabled: true } },
  ttl: { AccessToken: 10, IdToken: 60, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 300 },
  cookies: { keys: ['a key for tests'] },
})
provider.listen(+port, '127.0.0.1', () => console.log('up'))
