// Keeps all fresh parts of a page as they are, while somebody looks.
import { refresh } from "./fresh.js";
import { follow } from "./stream.js";

const APART_MS = 2000;
const AT_LEAST_MS = 15000; // what no event tells of, such as load, is looked at so often

// Where the server is away, the mark says so.
const again = () => refresh().catch(() => {});

follow(() => true, again, APART_MS);
setInterval(() => { if (!document.hidden) again(); }, AT_LEAST_MS);
