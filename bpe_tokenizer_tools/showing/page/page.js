// What is seen of the encoder: colored tokens, figures, a card for each token, the vocabulary.
//
// Nothing that comes from a text or a vocabulary is ever read as HTML: it goes into the page as
// textContent, or as the value of an attribute, and nowhere else.

const AT_ONCE = 4000;      // tokens put on the page; more on request
const HUES = 5;
const RESULTS = 200;       // of a search in the vocabulary
const SHORT_TEXT = 20_000; // characters; longer ones wait until typing stops
const SLICE_MS = 12;       // of encoding, before the browser may do something else
const LONGEST_LINK = 4000; // characters of text that a link carries
const LINK_MS = 300;       // without a change, before the address follows

const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en-US");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// -- The encoders --------------------------------------------------------------------------------

const loaded = new Map();

/** Return a promise of the encoder of a tokenizer; each is unpacked once, when first asked for. */
function encoderOf(index) {
  if (!loaded.has(index)) loaded.set(index, Encoder.load(data.tokenizers[index]));
  return loaded.get(index);
}

/** Encode without holding up the page; null if what was asked for is out of date meanwhile. */
async function encodeInSlices(encoder, text, special, trusted, isWanted, progress) {
  const work = encoder.encoding(text, special, trusted);
  for (;;) {
    for (const end = performance.now() + SLICE_MS; performance.now() < end;) {
      const {done, value} = work.next();
      if (done) return value;
      progress(value);
    }
    await new Promise((resume) => { setTimeout(resume); });
    if (!isWanted()) return null;
  }
}

// -- Making tokens visible -----------------------------------------------------------------------

const NAMED = {0xad: "SHY", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM",
  0x200f: "RLM", 0x2060: "WJ", 0xfeff: "BOM", 0xa0: "NBSP", 0x202f: "NNBSP", 0x3000: "IDSP"};
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}|\u3164|\uffa0|\u115f|\u1160/u;

/** Cut the bytes of a token into [kind, shown, meant]: text, blank, line, control and byte. */
function piecesOf(bytes) {
  const pieces = [];
  const add = (kind, shown, meant) => {
    const last = pieces[pieces.length - 1];
    if (last && last[0] === kind && kind === "text") {
      last[1] += shown;
    } else {
      pieces.push([kind, shown, meant]);
    }
  };
  for (let at = 0; at < bytes.length;) {
    const char = characterAt(bytes, at);
    if (char === null) {
      add("byte", hex(bytes[at++]));
      continue;
    }
    const code = char.codePointAt(0);
    at += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (char === " ") add("blank", "·", " ");
    else if (char === "\t") add("blank", "→", "\t");
    else if (char === "\n") add("line", "↵", "\n");
    else if (INVISIBLE.test(char)) add("control", nameOf(code), "");
    else if (!pieces.length && isSelector(code)) add("control", nameOf(code), "");
    else if (!pieces.length && /\p{M}/u.test(char)) add("text", "◌" + char);
    else add("text", char);
  }
  return pieces;
}

/** Variation selectors only choose how the character before them looks. */
const isSelector = (code) => code >= 0xfe00 && code <= 0xfe0f;

function nameOf(code) {
  if (isSelector(code)) return `VS${code - 0xfe00 + 1}`;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return NAMED[code] ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

/** Return the whole character that begins at a place, or null if there is none. */
function characterAt(bytes, at) {
  const first = bytes[at];
  const length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3
    : first < 0xf5 ? 4 : 0;
  if (!length || at + length > bytes.length) return null;
  try {
    return strictly.decode(bytes.subarray(at, at + length));
  } catch {
    return null;
  }
}
const strictly = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});

const hex = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");
const allHex = (bytes) => Array.from(bytes, hex).join(" ");

/** Write a token on one line, as plain text. */
function plain(bytes) {
  return piecesOf(bytes).map(([kind, shown]) => (kind === "byte" ? `⟨${shown}⟩` : shown)).join("");
}

/** Put a token into an element, its white space and bytes made visible. */
function show(bytes, into, {lines = true} = {}) {
  for (const [kind, shown, meant] of piecesOf(bytes)) {
    if (kind === "text") {
      into.append(shown);
      continue;
    }
    if (lines && meant === " ") into.append(document.createElement("wbr"));
    const hidden = (kind === "blank" || kind === "line") && !element("whitespace").checked;
    const span = document.createElement("span");
    span.className = kind === "line" ? "blank" : kind;
    span.textContent = hidden && lines ? "" : shown;
    into.append(span);
    if (lines && (hidden || kind === "line" || meant === "\t")) into.append(meant);
  }
}

// -- A panel: what one tokenizer makes of the text -----------------------------------------------

class Panel {
  constructor(index, changed) {
    const root = element("panel").content.cloneNode(true).firstElementChild;
    this.root = root;
    this.part = (name) => root.querySelector(name);
    this.select = this.part(".tokenizer");
    this.list = this.part(".tokens");
    this.index = index;
    this.tokens = [];
    this.drawn = [];   // what each token on the page was drawn from
    this.shown = 0;
    this.current = 0;  // the token that Tab comes to
    data.tokenizers.forEach(({name}, i) => this.select.append(new Option(name, i)));
    this.select.value = index;
    this.select.addEventListener("change", () => {
      this.index = Number(this.select.value);
      changed();
    });
    const copied = () => JSON.stringify(this.tokens.map((token) => this.encoder.ids[token]));
    this.part(".copy").addEventListener("click", (event) => copy(event.target, copied()));
    this.part(".more").addEventListener("click", () => this.showUpTo(this.shown + AT_ONCE));
    this.part(".query").addEventListener("input", () => this.search());
    this.part(".vocabulary").addEventListener("toggle", () => this.search());
    this.listen();
  }

  get name() {
    return data.tokenizers[this.index].name;
  }

  choose(index) {
    this.index = index;
    this.select.value = index;
  }

  /** Encode; false if that was given up. */
  async encode({text, trusted}, special, isWanted) {
    const note = this.part(".note");
    const status = (message) => {
      note.hidden = !message;
      note.textContent = message;
    };
    if (!loaded.has(this.index)) status("Unpacking the vocabulary …");
    const encoder = await encoderOf(this.index);
    if (!isWanted()) return false;
    const begun = performance.now();
    const missing = trusted ? encoder.given.missing[element("template").value] : [];
    const progress = (share) => {
      if (performance.now() > begun + 300) status(`Encoding … ${Math.round(100 * share)}%`);
    };
    const found = missing.length ? {tokens: [], prepared: null}
      : await encodeInSlices(encoder, text, special, trusted, isWanted, progress);
    if (found === null) return false;
    if (this.encoder !== encoder) this.describe(encoder);
    [this.tokens, this.prepared] = [found.tokens, found.prepared];
    status(missing.length ? "This tokenizer has no tokens for what the template writes: "
      + `${missing.join(" ")}. Choose another template or tokenizer.` : this.remark(text));
    this.ends = new Uint32Array(this.tokens.length);
    let end = 0;
    this.tokens.forEach((token, i) => { this.ends[i] = end += encoder.bytes(token).length; });
    return true;
  }

  remark(text) {
    const form = this.encoder.given.normalizer;
    const changed = form && this.encoder.normalizer.normalize(repaired(text)) !== repaired(text);
    return changed ? `This tokenizer normalizes text to ${form}, which changes this one.` : "";
  }

  describe(encoder) {
    this.encoder = encoder;
    const size = number(new Set(encoder.ids).size);
    this.part(".vocabulary summary").textContent = `The vocabulary: ${size} tokens`;
    this.search();
  }

  /** Show what was encoded; `other` is the panel to compare with, if any. */
  render(text, other) {
    const count = this.tokens.length;
    const bytes = new TextEncoder().encode(text).length;
    const special = this.tokens.filter((token) => this.isSpecial(token)).length;
    const characters = charactersOf(text);
    const comparison = other && this.prepared !== null && against(count, other.tokens.length);
    this.put(".tokens-count", number(count), comparison);
    this.put(".characters-count", number(characters));
    this.put(".bytes-count", number(bytes));
    this.put(".ratio", count ? (bytes / count).toFixed(2) : "–");
    this.put(".special-count", number(special));
    this.part(".of-special").hidden = !special;
    this.findCuts(other);
    const label = `Tokens of ${this.name}: ${number(count)}`;
    this.list.setAttribute("aria-label", label);
    this.list.dataset.empty = "No tokens yet.";
    this.keepFirst(this.countUnchanged());
    this.showUpTo(AT_ONCE);
  }

  /** Count the tokens, from the first, that are on the page as they are to be. */
  countUnchanged() {
    const limit = Math.min(this.drawn.length, this.tokens.length, AT_ONCE);
    let count = 0;
    while (count < limit && this.drawn[count] === this.look(count)) count++;
    return count;
  }

  /** Take all tokens but the first ones off the page. */
  keepFirst(count) {
    if (count) {
      const range = document.createRange();
      range.setStartAfter(this.list.children[count - 1]);
      range.setEndAfter(this.list.lastChild);
      range.deleteContents();
    } else {
      this.list.replaceChildren();
    }
    this.drawn.length = this.shown = count;
    if (this.current && this.current >= count) this.current = 0;
    if (count) this.list.children[this.current].tabIndex = 0;
  }

  /** Say in one word what decides how a token looks. */
  look(i) {
    const {view} = document.documentElement.dataset;
    const differs = this.differing?.(i) ?? false;
    return `${this.index} ${this.tokens[i]} ${differs} ${view} ${element("whitespace").checked}`;
  }

  put(name, text, aside = "") {
    const small = document.createElement("small");
    small.textContent = aside ? ` ${aside}` : "";
    this.part(name).replaceChildren(text, ...(aside ? [small] : []));
  }

  isSpecial(token) {
    return this.encoder.isAdded(token);
  }

  /** Note the tokens that the other panel does not have at the same place. */
  findCuts(other) {
    this.differing = null;
    const comparable = other && this.prepared !== null && other.prepared === this.prepared;
    this.part(".of-cuts").hidden = !comparable;
    if (!comparable) return;
    const theirs = new Set(other.ends);
    const mine = this.ends;
    this.put(".cuts-count", number(mine.reduce((sum, end) => sum + !theirs.has(end), 0)));
    const spans = new Map();
    other.ends.forEach((end, i) => spans.set(end, i ? other.ends[i - 1] : 0));
    this.differing = (i) => spans.get(mine[i]) !== (i ? mine[i - 1] : 0);
  }

  showUpTo(limit) {
    const fragment = document.createDocumentFragment();
    const end = Math.min(this.tokens.length, limit);
    for (let i = this.shown; i < end; i++) {
      fragment.append(this.span(i));
      this.drawn.push(this.look(i));
    }
    this.list.append(fragment);
    this.shown = end;
    const left = this.tokens.length - end, more = this.part(".more");
    more.hidden = !left;
    more.textContent = `Show more: these are the first ${number(end)} of `
      + `${plural(this.tokens.length, "token")}; the figures are of all`;
  }

  span(i) {
    const token = this.tokens[i], id = this.encoder.ids[token];
    const bytes = this.encoder.bytes(token);
    const span = document.createElement("span");
    span.className = `token hue-${i % HUES}`;
    if (this.isSpecial(token)) span.classList.add("special");
    if (this.differing?.(i)) span.classList.add("differs");
    span.setAttribute("role", "option");
    span.setAttribute("aria-selected", "false");
    const differs = this.differing?.(i) ? ", cut differently" : "";
    span.setAttribute("aria-label", `${plain(bytes)}, id ${id}${differs}`);
    span.tabIndex = i === this.current ? 0 : -1;
    const view = document.documentElement.dataset.view;
    if (view === "ids") span.textContent = id;
    else if (view === "bytes") span.textContent = allHex(bytes);
    else show(bytes, span);
    return span;
  }

  /** Tokens of the other panel that share bytes with one of this are outlined there. */
  link(i, other) {
    for (const span of other.list.querySelectorAll(".linked")) span.classList.remove("linked");
    if (i === null || !this.differing) return;
    const start = i ? this.ends[i - 1] : 0;
    let at = lowerBound(other.ends, start + 1);
    for (; at < other.shown && (at ? other.ends[at - 1] : 0) < this.ends[i]; at++) {
      other.list.children[at].classList.add("linked");
    }
  }

  // -- Moving about ---

  listen() {
    const list = this.list;
    const indexOf = (target) => {
      const span = target instanceof Element ? target.closest(".token") : null;
      return span ? Array.prototype.indexOf.call(list.children, span) : -1;
    };
    const open = (event, pinned) => {
      const i = indexOf(event.target);
      if (i >= 0) card.openToken(this, i, pinned);
      return i;
    };
    list.addEventListener("pointerover", (event) => {
      if (event.pointerType !== "touch") open(event, false);
    });
    list.addEventListener("pointerleave", () => card.leave());
    list.addEventListener("click", (event) => {
      const i = open(event, true);
      if (i >= 0) this.moveTo(i, false);
    });
    list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) open(event, card.pinned);
    });
    list.addEventListener("focusout", () => card.leave());
    list.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const steps = {ArrowRight: 1, ArrowLeft: -1};
    let to = null;
    if (event.key in steps) to = this.current + steps[event.key];
    else if (event.key === "ArrowDown") to = this.line(1);
    else if (event.key === "ArrowUp") to = this.line(-1);
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.shown - 1;
    if (to !== null) this.moveTo(Math.max(0, Math.min(this.shown - 1, to)));
    else if (event.key === "Enter" || event.key === " ") card.openToken(this, this.current, true);
    else return;
    event.preventDefault();
  }

  moveTo(i, focus = true) {
    const spans = this.list.children;
    if (spans[this.current]) spans[this.current].tabIndex = -1;
    this.current = i;
    spans[i].tabIndex = 0;
    if (focus) spans[i].focus();
  }

  /** Return the token above (-1) or below (1) the current one. */
  line(step) {
    const spans = this.list.children;
    const box = (i) => spans[i].getClientRects()[0] ?? spans[i].getBoundingClientRect();
    const from = box(this.current);
    let best = this.current, line = null;
    for (let i = this.current + step; i >= 0 && i < this.shown; i += step) {
      const here = box(i);
      if (Math.abs(here.top - from.top) < from.height / 2) continue;
      line ??= here.top;
      if (Math.abs(here.top - line) >= from.height / 2) break;
      const nearer = Math.abs(here.left - from.left) < Math.abs(box(best).left - from.left);
      if (best === this.current || nearer) best = i;
    }
    return best;
  }

  // -- The vocabulary ---

  search() {
    if (!this.encoder || !this.part(".vocabulary").open) return;
    const query = this.part(".query").value;
    const [tokens, total] = query ? findTokens(this.encoder, query) : [[], 0];
    const found = this.part(".found");
    found.textContent = !query ? "" : total > tokens.length
      ? `${plural(total, "token")}, of which the ${number(tokens.length)} shortest:`
      : plural(total, "token");
    this.part(".results").replaceChildren(...tokens.map((token) => {
      const button = document.createElement("button");
      const [text, id] = [document.createElement("span"), document.createElement("small")];
      button.type = "button";
      show(this.encoder.bytes(token), text, {lines: false});
      id.textContent = this.encoder.ids[token];
      button.append(text, id);
      button.addEventListener("click", () => card.open(this, token, button, true));
      return button;
    }));
  }
}

/** Return where in rising numbers the first stands that is not below a limit. */
function lowerBound(numbers, limit) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = low + high >> 1;
    if (numbers[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Count characters: two surrogates are one. */
function charactersOf(text) {
  let count = text.length;
  for (let at = 0; at < text.length; at++) count -= (text.charCodeAt(at) & 0xfc00) === 0xd800;
  return count;
}

/** Say how a count compares with another. */
function against(count, other) {
  if (!other || count === other) return count === other ? "the same" : "";
  const percent = 100 * (count - other) / other;
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(1)}%`;
}

/** Return [the shortest tokens with an id or with a text in them, how many there are]. */
function findTokens(encoder, query) {
  const wanted = new TextEncoder().encode(query), found = [];
  const id = /^\d+$/.test(query) ? Number(query) : -1;
  for (let token = 0; token < encoder.ids.length; token++) {
    if (encoder.ids[token] === id || holds(encoder.bytes(token), wanted)) found.push(token);
  }
  const weight = (token) => (encoder.ids[token] === id ? -1 : encoder.bytes(token).length);
  found.sort((a, b) => weight(a) - weight(b));
  return [found.slice(0, RESULTS), found.length];
}

function holds(bytes, wanted) {
  for (let at = bytes.indexOf(wanted[0]); at !== -1; at = bytes.indexOf(wanted[0], at + 1)) {
    if (wanted.every((byte, i) => bytes[at + i] === byte)) return true;
  }
  return false;
}

/** Copy something, and say so on the button that was pressed. */
async function copy(button, copied) {
  const label = button.dataset.label ??= button.textContent;
  try {
    await navigator.clipboard.writeText(copied);
    button.textContent = "Copied";
  } catch {
    button.textContent = copyOldWay(copied) ? "Copied" : "Could not copy";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

/** Copy where the clipboard is refused, as it may be for a file. */
function copyOldWay(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

// -- The card of a token -------------------------------------------------------------------------

const card = {
  root: element("card"),
  anchor: null,   // the element it belongs to
  pinned: false,  // stays when the pointer leaves
  timer: 0,

  openToken(panel, i, pinned) {
    if (this.pinned && !pinned) return;
    this.open(panel, panel.tokens[i], panel.list.children[i], pinned);
    panels.forEach((other) => { if (other !== panel) panel.link(i, other); });
  },

  open(panel, token, anchor, pinned) {
    clearTimeout(this.timer);
    this.forget();
    [this.anchor, this.pinned] = [anchor, pinned];
    anchor.classList.add("shown");
    anchor.setAttribute("aria-describedby", "card");
    if (anchor.role === "option") anchor.setAttribute("aria-selected", "true");
    this.fill(panel, token);
    this.root.hidden = false;
    document.body.classList.toggle("carded", pinned);
    this.place();
    this.uncover();
  },

  /** Where the card covers what it belongs to, for want of room, scroll that above it. */
  uncover() {
    const card = this.root.getBoundingClientRect(), at = this.anchor.getBoundingClientRect();
    const covered = at.bottom > card.top && at.top < card.bottom && at.left < card.right
      && at.right > card.left;
    if (!this.pinned || !covered) return;
    scrollBy(0, at.bottom - card.top + 24);
    this.place();  // at once: the event comes with the next frame
  },

  fill(panel, token) {
    const encoder = panel.encoder, bytes = encoder.bytes(token);
    const name = this.root.querySelector(".name");
    name.replaceChildren();
    show(bytes, name, {lines: false});
    const facts = [["Id", number(encoder.ids[token])], ["Bytes", allHex(bytes), "hex"]];
    facts.push(["Length", `${plural(bytes.length, "byte")}${charactersIn(bytes)}`]);
    facts.push(["Rank", rankOf(encoder, token)]);
    const times = panel.tokens.reduce((sum, each) => sum + (each === token), 0);
    facts.push(["In this text", times === 1 ? "once" : `${number(times)} times`]);
    const list = this.root.querySelector("dl");
    list.replaceChildren(...facts.flatMap(([term, value, kind]) => {
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      [dt.textContent, dd.textContent, dd.className] = [term, value, kind ?? ""];
      return [dt, dd];
    }));
    this.drawTree(encoder, token);
    this.root.scrollTop = 0;
  },

  drawTree(encoder, token) {
    const box = this.root.querySelector(".tree"), title = this.root.querySelector("h3");
    const explained = this.root.querySelector(".explained");
    const length = encoder.bytes(token).length;
    const drawn = !encoder.isAdded(token) && length > 1 && length <= LONGEST_TREE;
    const trees = drawn ? encoder.vocabulary.trees(token) : [];
    box.hidden = title.hidden = !drawn;
    box.replaceChildren(...(drawn ? [drawing(encoder, trees)] : []));
    box.setAttribute("aria-label", trees.map((tree) => spoken(encoder, tree)).join("; "));
    explained.textContent = length > LONGEST_TREE ? "This token is too long to draw its merges."
      : trees.length < 2 ? ""
      : "Merging this token's bytes gives several tokens: " + (encoder.given.ignore_merges
        ? "it occurs only as a whole pre-token, which needs no merges."
        : "no text gives this token.");
  },

  /** Put the card near what it belongs to, where it covers neither that nor any figures; on a
      phone, as low as that goes. */
  place() {
    const {style} = this.root, phone = matchMedia("(max-width: 36rem)").matches;
    style.maxHeight = `${HIGHEST_CARD}px`;
    const {offsetWidth: width, offsetHeight: height} = this.root;
    const at = this.anchor.getClientRects()[0] ?? this.anchor.getBoundingClientRect();
    const figures = panels.map((panel) => panel.part(".figures").getBoundingClientRect());
    const taken = [at, ...figures].filter((box) => box.bottom > 0 && box.top < innerHeight);
    const rightmost = innerWidth - width;
    const edge = Math.min(GAP, rightmost / 2);
    const lefts = [at.left - 24, ...taken.flatMap((box) => [box.right + GAP, box.left - width - GAP])]
      .map((left) => Math.max(edge, Math.min(left, rightmost - edge)));
    let best = null;
    for (const left of lefts) {
      for (const [top, bottom] of spans(taken, left, left + width)) {
        const fits = Math.min(height, bottom - top);
        if (fits <= 0) continue;
        const isBelow = at.bottom + GAP <= top, isAbove = at.top - GAP >= bottom;
        const wanted = isAbove || (isBelow && phone) ? bottom - fits : isBelow ? top : at.top;
        const place = {left, fits, top: Math.max(top, Math.min(wanted, bottom - fits))};
        const away = Math.max(0, place.top - at.bottom, at.top - place.top - fits)
          + Math.max(0, left - at.right, at.left - left - width);
        place.cost = height - fits + 1000 * (fits < Math.min(height, LOWEST_CARD))
          + (phone ? 200 * !isBelow : away + 120 * !(isBelow || isAbove));
        if (!best || place.cost < best.cost) best = place;
      }
    }
    best ??= {left: edge, top: GAP, fits: height};
    style.maxHeight = `${Math.floor(best.fits)}px`;
    style.top = `${best.top}px`;
    style.left = `${best.left}px`;
  },

  /** The pointer has left: close, unless it comes to the card. */
  leave() {
    clearTimeout(this.timer);
    if (!this.pinned) this.timer = setTimeout(() => this.close(), 150);
  },

  close() {
    clearTimeout(this.timer);
    this.forget();
    [this.anchor, this.pinned, this.root.hidden] = [null, false, true];
    document.body.classList.remove("carded");
    panels.forEach((panel) => panel.link(null, panel));
  },

  forget() {
    this.anchor?.classList.remove("shown");
    this.anchor?.removeAttribute("aria-describedby");
    if (this.anchor?.role === "option") this.anchor.setAttribute("aria-selected", "false");
  },
};

const HIGHEST_CARD = 560, LOWEST_CARD = 200, GAP = 8;  // pixels

/** Return the spans of height, from top to bottom, where nothing is taken between two sides. */
function spans(taken, left, right) {
  const free = [];
  const boxes = taken.filter((box) => box.left < right + GAP && box.right > left - GAP);
  let top = GAP;
  for (const box of boxes.sort((a, b) => a.top - b.top)) {
    if (box.top - GAP > top) free.push([top, box.top - GAP]);
    top = Math.max(top, box.bottom + GAP);
  }
  if (innerHeight - GAP > top) free.push([top, innerHeight - GAP]);
  return free;
}

function charactersIn(bytes) {
  const kinds = piecesOf(bytes).map(([kind]) => kind);
  if (kinds.includes("byte")) {
    return kinds.every((kind) => kind === "byte") ? ", part of a character"
      : ", with part of a character";
  }
  return `, ${plural(charactersOf(strictly.decode(bytes)), "character")}`;
}

function rankOf(encoder, token) {
  if (encoder.isAdded(token)) {
    const special = encoder.added[token - encoder.vocabulary.size].special;
    return special ? "none: a special token, found before text is cut"
      : "none: an added token, found before text is cut";
  }
  const rank = encoder.vocabulary.makers[token], all = encoder.vocabulary.merged.length;
  if (rank >= 0) return `${number(rank)} of ${number(all)} merges, counted from 0`;
  return encoder.bytes(token).length === 1 ? "none: a single byte" : "none: no merge makes it";
}

// -- Drawing merges ------------------------------------------------------------------------------

const ROW = 52, BOX = 35, LEAF = 24;  // heights
const LONGEST_TREE = 512;             // bytes

/** Say a tree in words: what joins what. */
function spoken(encoder, tree) {
  const name = plain(encoder.bytes(tree.token));
  if (!tree.left) return name;
  const inner = [tree.left, tree.right].filter((part) => part.left);
  const own = `${name} is ${plain(encoder.bytes(tree.left.token))} and `
    + plain(encoder.bytes(tree.right.token));
  return [own, ...inner.map((part) => spoken(encoder, part))].join(", ");
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Draw trees side by side: bytes at the bottom, what they are merged to above them. */
function drawing(encoder, trees) {
  const rows = Math.max(...trees.map(heightOf));
  const lines = svg("g", {}), boxes = svg("g", {});
  let right = 1;
  const place = (node) => {
    const label = shortened(plain(encoder.bytes(node.token)));
    const width = Math.max(node.left ? 44 : 26, 14 + 7.6 * label.length);
    if (node.left) {
      const [a, b] = [place(node.left), place(node.right)];
      [node.x, node.row] = [(a.x + b.x) / 2, 1 + Math.max(a.row, b.row)];
      right = Math.max(right, node.x + width / 2 + 6);
    } else {
      [node.x, node.row] = [right + width / 2, 0];
      right += width + 6;
    }
    node.x = Math.max(node.x, width / 2 + 1);
    const y = (rows - node.row) * ROW + 1;
    for (const child of node.left ? [node.left, node.right] : []) {
      const from = y + BOX, to = (rows - child.row) * ROW + 1, middle = (from + to) / 2;
      lines.append(svg("path",
        {d: `M${node.x} ${from}C${node.x} ${middle} ${child.x} ${middle} ${child.x} ${to}`}));
    }
    boxes.append(nodeBox(encoder, node, label, width, y));
    return node;
  };
  trees.forEach(place);
  const [width, height] = [Math.ceil(right), rows * ROW + LEAF + 2];
  return svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`}, lines, boxes);
}

function nodeBox(encoder, node, label, width, y) {
  const [title, text] = [svg("title", {}), svg("text", {x: node.x, y: y + 16.5})];
  const id = `id ${number(encoder.ids[node.token])}`;
  title.textContent = `${plain(encoder.bytes(node.token))}: ${id}`
    + (node.left ? `, merge ${number(node.rank)}` : ", a single byte");
  text.textContent = label;
  const height = node.left ? BOX : LEAF;
  const box = svg("rect", {x: node.x - width / 2, y, width, height, rx: 5});
  const group = svg("g", {class: node.left ? "made" : "leaf"}, title, box, text);
  if (node.left) {
    const rank = svg("text", {x: node.x, y: y + BOX - 6, class: "rank"});
    rank.textContent = number(node.rank);
    group.append(rank);
  }
  return group;
}

function heightOf(tree) {
  return tree.left ? 1 + Math.max(heightOf(tree.left), heightOf(tree.right)) : 0;
}

function shortened(text) {
  const chars = Array.from(text);
  return chars.length > 14 ? `${chars.slice(0, 13).join("")}…` : text;
}

// -- The page ------------------------------------------------------------------------------------

let text = data.text;  // as given, until it is edited: the box below changes line ends
let trusted = null;    // of a conversation, [begin, end] of each part that the template wrote
let refused = "";      // why the template does not take the conversation
let panels = [];
let latest = 0;        // the number of the newest request to encode

/** Encode the text in all panels and show it; a newer call takes over from an older one. */
async function update() {
  const request = ++latest, isWanted = () => request === latest;
  const special = element("special").checked;
  try {
    const done = await Promise.all(
      panels.map((panel) => panel.encode({text, trusted}, special, isWanted)));
    if (!done.every(Boolean) || !isWanted()) return;
  } catch (error) {
    return isWanted() && fail(error);
  }
  element("failure").hidden = true;
  card.close();
  panels.forEach((panel, i) => panel.render(repaired(text), panels[1 - i]));
  remark();
  announce();
  if (started) followSoon();
  document.documentElement.dataset.encoded = request;
}

let announcing = 0;

/** Tell those who do not see the figures, once typing stops. */
function announce() {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    element("announced").textContent = panels
      .map((panel) => `${panel.name}: ${plural(panel.tokens.length, "token")}`).join("; ");
  }, 1000);
}

function fail(error) {
  console.error(error);
  element("failure").hidden = false;
  const reason = error instanceof RangeError
    ? "this browser cannot match the split pattern against so long a text"
    : `${error.message}. Chrome, Edge, Firefox and Safari of 2024 or later can run this page`;
  element("failure").textContent = "This text could not be encoded, so an earlier one is "
    + `shown below: ${reason}.`;
}

function remark() {
  const notes = [refused, unknown].filter(Boolean);
  if (repaired(text) !== text) notes.push("Lone surrogates in this text were read as U+FFFD.");
  if (!trusted && text !== element("text").value && text.includes("\r")) {
    notes.push("The text contains carriage returns, which stay until you edit it.");
  }
  const prepared = new Set(panels.map((panel) => panel.prepared));
  if (prepared.size > 1 && !prepared.has(null)) {
    notes.push("The two tokenizers prepare this text differently, so cuts are not compared.");
  }
  if (isLong()) {
    notes.push(`Links leave out this text, which has more than ${number(LONGEST_LINK)} characters.`);
  }
  element("text-note").textContent = notes.join(" ");
  element("text-note").hidden = !notes.length;
}

let waiting = 0;

function typed() {
  if (element("template").value) compose();
  else [text, trusted, refused] = [element("text").value, null, ""];
  clearTimeout(waiting);
  latest++;  // what is under way is out of date
  waiting = setTimeout(update, text.length > SHORT_TEXT ? 250 : 0);
}

function arrange(left = -1, right = -1) {
  const two = element("compare").checked;
  panels[0] ??= new Panel(0, update);
  if (left >= 0) panels[0].choose(left);
  if (two) panels[1] ??= new Panel(panels[0].index ? 0 : 1, update);
  else panels.length = 1;
  if (two && right >= 0) panels[1].choose(right);
  element("panels").replaceChildren(...panels.map((panel) => panel.root));
  element("panels").classList.toggle("two", panels.length > 1);
  return update();
}

// -- Conversations -------------------------------------------------------------------------------

const messages = () => Array.from(element("messages").children, (item) => ({
  role: item.querySelector(".role").value, content: item.querySelector(".content").value}));

function addMessage(role, content) {
  const item = element("message").content.cloneNode(true).firstElementChild;
  const [choice, box] = [item.querySelector(".role"), item.querySelector(".content")];
  data.roles.forEach((name) => choice.append(new Option(name)));
  [choice.value, box.value] = [role, content];
  choice.addEventListener("change", typed);
  box.addEventListener("input", typed);
  item.querySelector(".remove").addEventListener("click", () => {
    item.remove();
    countMessages();
    typed();
  });
  element("messages").append(item);
  return box;
}

/** A conversation has a message at least. */
function countMessages() {
  const buttons = element("messages").querySelectorAll(".remove");
  buttons.forEach((button) => { button.disabled = buttons.length < 2; });
}

/** Show the box of a text, or those of a conversation. */
function chooseTemplate() {
  const chats = Boolean(element("template").value);
  element("conversation").hidden = !chats;
  element("text").hidden = chats;
  element("text-label").textContent = chats ? "Messages" : "Text";
  const hasSpecial = data.tokenizers.some(({added}) => added.some((token) => token.special));
  element("special").closest("label").hidden = chats || !hasSpecial;
  if (chats && !element("messages").children.length) addMessage("user", element("text").value);
  countMessages();
}

/** Put what the template writes around the messages; note which parts it wrote. */
function compose() {
  const {opening, between, closing, strips} = data.templates[element("template").value];
  const talk = messages(), parts = [];
  let before = null;
  for (const {role, content} of talk) {
    parts.push(before === null ? opening[role] : between[`${before} ${role}`]);
    parts.push(repaired(strips ? stripped(content) : content));
    before = role;
  }
  parts.push(closing[before]?.[Number(element("prompt").checked)]);
  const wrong = parts.findIndex((part) => part === undefined);
  refused = wrong < 0 ? "" : `The template ${element("template").value} doesn't allow a message of `
    + `the role ${talk[Math.min(wrong >> 1, talk.length - 1)].role} here.`;
  [text, trusted] = ["", []];
  if (refused) return;
  parts.forEach((part, i) => {
    if (i % 2 === 0) trusted.push([text.length, text.length + part.length]);
    text += part;
  });
}

/** Do what Python's `str.strip` does. */
function stripped(content) {
  let [from, to] = [0, content.length];
  while (from < to && data.white_space.includes(content[from])) from++;
  while (from < to && data.white_space.includes(content[to - 1])) to--;
  return content.slice(from, to);
}

// -- Links ---------------------------------------------------------------------------------------

let started = false;  // the address stays as it was until something changes
let unknown = "";     // what a link named and is not here
let following = 0;

const isLong = () => (element("template").value
  ? messages().reduce((sum, {content}) => sum + content.length, 0) : text.length) > LONGEST_LINK;

/** Return what the page shows, as what may stand behind # in its address. */
function described() {
  const link = new URLSearchParams(), template = element("template").value;
  if (template) link.set("template", template);
  if (template) link.set("prompt", Number(element("prompt").checked));
  if (template && !isLong()) messages().forEach(({role, content}) => link.append(role, content));
  if (!template && !isLong()) link.set("text", text);
  panels.forEach((panel, i) => link.set(i ? "right" : "left", panel.name));
  link.set("view", document.documentElement.dataset.view);
  for (const id of ["special", "whitespace"]) link.set(id, Number(element(id).checked));
  return `#${link}`;
}

function followSoon() {
  clearTimeout(following);
  following = setTimeout(follow, LINK_MS);
}

/** Write into the address what is shown. */
function follow() {
  clearTimeout(following);
  unknown = "";
  try {
    history.replaceState(null, "", described());
  } catch (error) {
    console.warn(error);  // too often, for some browsers; the next change tries again
  }
}

/** Show what the address describes, and where it says nothing, what the page was written with. */
function restore() {
  clearTimeout(following);
  const link = new URLSearchParams(location.hash.slice(1));
  const ticked = (id, otherwise) => {
    element(id).checked = link.has(id) ? link.get(id) === "1" : otherwise;
  };
  const sides = ["left", "right"].map((side) =>
    data.tokenizers.findIndex(({name}) => name === link.get(side)));
  unknown = ["left", "right"].filter((side, i) => link.has(side) && sides[i] < 0)
    .map((side) => `This page doesn't have the tokenizer that the link names, ${link.get(side)}.`).join(" ");
  element("compare").checked = data.tokenizers.length > 1 && (link.has("right") || !link.has("left"));
  ticked("special", data.special);
  ticked("whitespace", true);
  ticked("prompt", true);
  const radios = Array.from(document.querySelectorAll("[name=view]"));
  const radio = radios.find(({value}) => value === link.get("view")) ?? radios[0];
  radio.checked = true;
  document.documentElement.dataset.view = radio.value;
  text = link.get("text") ?? data.text;
  element("text").value = text;
  const template = link.get("template") ?? "";
  element("template").value = Object.hasOwn(data.templates, template) ? template : "";
  element("messages").replaceChildren();
  for (const [role, content] of link) if (data.roles.includes(role)) addMessage(role, content);
  chooseTemplate();
  [trusted, refused] = [null, ""];
  if (element("template").value) compose();
  const [left, right] = sides;
  return arrange(Math.max(0, left), right < 0 ? Number(left < 1) : right);
}

// -- Beginning -----------------------------------------------------------------------------------

const THEMES = {auto: ["◐", "as the system has it"], light: ["☀", "light"], dark: ["☾", "dark"]};

function nextTheme() {
  const names = Object.keys(THEMES), root = document.documentElement;
  const name = names[(names.indexOf(root.dataset.theme) + 1) % names.length];
  const [sign, words] = THEMES[name];
  root.dataset.theme = name;
  element("theme").textContent = sign;
  element("theme").title = `Colors: ${words}`;
  element("theme").setAttribute("aria-label", `Colors: ${words}`);
}

function start() {
  element("compare").closest("label").hidden = data.tokenizers.length < 2;
  for (const name of Object.keys(data.templates)) {
    element("template").append(new Option(`Chat: ${name}`, name));
  }
  element("template").addEventListener("change", () => {
    chooseTemplate();
    typed();
  });
  element("add").addEventListener("click", () => {
    const last = messages().at(-1).role;
    addMessage(last === "user" ? "assistant" : "user", "").focus();
    countMessages();
    typed();
  });
  element("prompt").addEventListener("change", typed);
  element("link").addEventListener("click", (event) => {
    follow();
    copy(event.target, location.href.split("#")[0] + described());
  });
  addEventListener("hashchange", restore);
  element("text").addEventListener("input", typed);
  element("compare").addEventListener("change", () => arrange());
  element("special").addEventListener("change", update);
  element("whitespace").addEventListener("change", update);
  element("theme").addEventListener("click", nextTheme);
  for (const radio of document.querySelectorAll("[name=view]")) {
    radio.addEventListener("change", () => {
      document.documentElement.dataset.view = radio.value;
      update();
    });
  }
  card.root.addEventListener("pointerenter", () => clearTimeout(card.timer));
  card.root.addEventListener("pointerleave", () => card.leave());
  card.root.querySelector(".close").addEventListener("click", () => {
    const anchor = card.anchor;
    card.close();
    anchor?.focus({preventScroll: true});
    card.close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || card.root.hidden) return;
    const anchor = card.anchor, within = card.root.contains(document.activeElement);
    card.close();
    if (within) anchor.focus();
    if (within) card.close();
  });
  document.addEventListener("pointerdown", (event) => {
    const {target} = event;
    if (!card.root.hidden && !card.root.contains(target) && !target.closest(".token")) card.close();
  });
  addEventListener("scroll", () => { if (!card.root.hidden) card.place(); }, {passive: true});
  addEventListener("resize", () => { if (!card.root.hidden) card.place(); });
  return restore();
}

const ready = start().then(() => { started = true; });
