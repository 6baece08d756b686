// A line of a log as elements: colours of terminals become classes, and all else is text. Nothing of a log is markup.
const CODES = /\u001b\[([0-9;]*)m|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b./g;
// Signs that are not seen, or that turn the order of others around, are shown by their number.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST = 4000; // characters of a line that are shown,
const MOST_PARTS = 300; // and elements that these become: what is neither text nor a terminal's colours has thousands

export function clean(text) {
  const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
  return whole.slice(whole.lastIndexOf("\r") + 1); // what a terminal would show of a line that was written over
}

export const plainText = (text) => clean(text).replace(CODES, "");

function styled(classes, codes) {
  const numbers = (codes || "0").split(";").map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) classes.clear();
    else if (code === 1) classes.set("weight", "a-bold");
    else if (code === 2) classes.set("weight", "a-dim");
    else if (code === 3) classes.set("slant", "a-italic");
    else if (code === 4) classes.set("line", "a-under");
    else if (code === 22) classes.delete("weight");
    else if (code === 39) classes.delete("ink");
    else if (code === 49) classes.delete("ground");
    else if (code >= 30 && code <= 37) classes.set("ink", `a-${code - 30}`);
    else if (code >= 90 && code <= 97) classes.set("ink", `a-${code - 90}`);
    else if (code >= 40 && code <= 47) classes.set("ground", `a-on-${code - 40}`);
    else if (code === 38 || code === 48) at += numbers[at + 1] === 2 ? 4 : 2; // finer colours than we have
  }
}

// Appends text; what is looked for stands out, and what cannot be seen is named, as long as parts are left.
function put(place, text, wanted, parts) {
  let at = 0;
  const low = wanted ? text.toLowerCase() : "";
  const write = (part, target) => {
    let begin = 0;
    for (const { 0: sign, index } of part.matchAll(UNSEEN)) {
      if ((parts.left -= 1) < 0) break;
      target.append(part.slice(begin, index));
      const odd = document.createElement("span");
      odd.className = "odd";
      odd.textContent = `U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      target.append(odd);
      begin = index + 1;
    }
    target.append(part.slice(begin).replace(UNSEEN, "\ufffd"));
  };
  for (let hit = wanted ? low.indexOf(wanted) : -1; hit >= 0 && (parts.left -= 1) >= 0; hit = low.indexOf(wanted, at)) {
    write(text.slice(at, hit), place);
    const mark = document.createElement("mark");
    write(text.slice(hit, hit + wanted.length), mark);
    place.append(mark);
    at = hit + wanted.length;
  }
  write(text.slice(at), place);
}

export function draw(place, text, wanted) {
  const line = clean(text);
  const shown = line.length > LONGEST ? line.slice(0, LONGEST) : line;
  const classes = new Map();
  const parts = { left: MOST_PARTS };
  let at = 0;
  const piece = (part) => {
    if (!part) return;
    if (!classes.size) return put(place, part, wanted, parts);
    parts.left -= 1;
    const span = document.createElement("span");
    span.className = [...classes.values()].join(" ");
    put(span, part, wanted, parts);
    place.append(span);
  };
  for (const found of shown.matchAll(CODES)) {
    if (parts.left <= 0) break;
    piece(shown.slice(at, found.index));
    if (found[1] !== undefined) styled(classes, found[1]);
    at = found.index + found[0].length;
  }
  piece(shown.slice(at).replace(CODES, ""));
  if (line.length > LONGEST) {
    const more = document.createElement("span");
    more.className = "odd";
    more.textContent = `and ${line.length - LONGEST} more characters`;
    place.append(more);
  }
}
