// What every page has: how it looks, the clock, menus, the palette, and moments that stay true.
import { byId, make, reachScrolled } from "./dom.js";
import { away, clock } from "./words.js";

const root = document.documentElement;
const viewer = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const YEAR_SECONDS = 365 * 86400;

// ── looks ──

const look = () => `horae-look=${root.dataset.theme}.${root.dataset.density}.${root.dataset.zone}`;
const isKept = () => document.cookie.split("; ").includes(look());

function keep() {
  document.cookie = `${look()}; Path=/; Max-Age=${YEAR_SECONDS}; SameSite=Lax`;
}

// Charts, and days of a zone, are drawn by the server: they are right once it knows the zone. A page is read again only
// where a cookie is new and was kept: never again and again where cookies are refused, or the zone is not known there.
const FIXED = "main :is(svg:not(form svg), [data-clock], [data-fixed])";

function keepZone() {
  const wasKept = isKept();
  keep();
  if (!wasKept && isKept() && document.querySelector(FIXED)) location.reload();
}

function isZone(name) {
  try {
    return Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}

// Every moment of a page is said anew in the zone.
function showZone(name) {
  root.dataset.zone = name;
  byId("zone-name").textContent = name;
  for (const place of document.querySelectorAll("time[datetime]")) {
    if (place.id === "clock") continue;
    if ("away" in place.dataset) place.title = clock(place.dateTime);
    else if (!("fixed" in place.dataset)) place.textContent = clock(place.dateTime);
  }
  keepZone();
  tick();
}

function chooseZone(value) {
  byId("other-zone").hidden = value !== "other";
  if (value === "other") {
    const names = byId("zones");
    if (!names.children.length) names.append(...Intl.supportedValuesOf("timeZone").map((zone) => make("option", { value: zone })));
    byId("other-zone").querySelector("input").focus();
  } else showZone(value === "viewer" ? viewer : value);
}

function startLook() {
  const menu = byId("look");
  menu.hidden = false;
  if ("zoneUnknown" in root.dataset) showZone(viewer);
  const { zone } = root.dataset;
  const choice = zone === viewer ? "viewer" : zone === "UTC" ? "UTC" : "other";
  menu.querySelector(`[name=zone][value=${choice}]`).checked = true;
  if (choice === "other") {
    byId("other-zone").hidden = false;
    byId("other-zone").querySelector("input").value = zone;
  }
  menu.addEventListener("change", ({ target }) => {
    if (target.name === "zone") return chooseZone(target.value);
    if (target.closest("#other-zone")) {
      const isKnown = isZone(target.value);
      target.setAttribute("aria-invalid", String(!isKnown));
      byId("other-zone").querySelector(".verdict").textContent = isKnown ? "" : "there is no such time zone";
      return isKnown && showZone(target.value);
    }
    root.dataset[target.name] = target.value;
    keep();
  });
}

// ── time ──

const short = () => new Intl.DateTimeFormat("en-GB", {
  timeZone: root.dataset.zone, weekday: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
}).format(new Date()).replace(",", "");

function tick() {
  if (document.hidden) return;
  byId("clock").textContent = short();
  const now = Date.now();
  for (const place of document.querySelectorAll("time[data-away]")) {
    const said = away(place.dateTime, now);
    if (said !== place.textContent) place.textContent = said;
  }
}

// ── menus and keys ──

function closeMenus(but) {
  for (const menu of document.querySelectorAll(".menu[open]")) if (menu !== but) menu.open = false;
}

// What is typed while the palette is on its way is typed into it.
let opening;

async function openPalette(text = "") {
  if (opening) {
    opening.text += text;
    return;
  }
  const typed = (opening = { text, isEntered: false });
  try {
    const { open } = await import("./palette.js");
    open(typed.text, typed.isEntered);
  } finally {
    opening = undefined;
  }
}

function typeAhead(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.key.length > 1 && event.key !== "Enter")) return;
  event.preventDefault();
  if (event.key === "Enter") opening.isEntered = true;
  else opening.text += event.key;
}

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented) return;
  if (opening) typeAhead(event);
  else if (event.key === "Escape") {
    const menu = document.querySelector(".menu[open]");
    closeMenus();
    menu?.querySelector("summary").focus();
  } else if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping(event.target) && !event.ctrlKey)) {
    event.preventDefault();
    openPalette();
  }
});
document.addEventListener("click", ({ target }) => {
  closeMenus(target.closest(".menu"));
  const moment = target.closest("main time[datetime]");
  if (moment && !target.closest("a, button")) copy(moment.dateTime);
});

async function copy(text) {
  if (getSelection().toString()) return;
  const { toast } = await import("./toasts.js");
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${text}`);
  } catch { /* where the browser does not allow it, the moment can be marked and copied by hand */ }
}

const finder = byId("finder");
finder.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  openPalette(finder.value);
});
finder.addEventListener("keydown", (event) => {
  if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openPalette(event.key);
  }
});

// Where the rail is a row that can be scrolled, the page that one is on is seen.
const here = document.querySelector(".rail [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.clientWidth / 3;

startLook();
reachScrolled();
addEventListener("resize", reachScrolled);
tick();
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
