// What is seen of the encoder: coloured tokens, figures, a card for each token, the vocabulary.
//
// Nothing that comes from a text or a vocabulary is ever read as HTML: it goes into the page as
// textContent, or as the value of an attribute, and nowhere else.

const AT_ONCE = 4000;      // tokens put on the page; more on request
const HUES = 5;
const RESULTS = 200;       // of a search in the vocabulary
const SHORT_TEXT = 20_000; // characters; longer ones wait until typing stops
const SLICE_MS = 12;       // of encoding, before the browser may do something else

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
async function encodeInSlices(encoder, text, special, isWanted, progress) {
  const work = encoder.encoding(text, special);
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
    this.part(".copy").addEventListener("click", () => this.copy());
    this.part(".more").addEventListener("click", () => this.showUpTo(this.shown + AT_ONCE));
    this.part(".query").addEventListener("input", () => this.search());
    this.part(".vocabulary").addEventListener("toggle", () => this.search());
    this.listen();
  }

  get name() {
    return data.tokenizers[this.index].name;
  }

  /** Encode; false if that was given up. */
  async encode(text, special, isWanted) {
    const note = this.part(".note");
    const status = (message) => {
      note.hidden = !message;
      note.textContent = message;
    };
    if (!loaded.has(this.index)) status("Unpacking the vocabulary …");
    const encoder = await encoderOf(this.index);
    if (!isWanted()) return false;
    const begun = performance.now();
    const found = await encodeInSlices(encoder, text, special, isWanted, (share) => {
      if (performance.now() > begun + 300) status(`Encoding … ${Math.round(100 * share)} %`);
    });
    if (found === null) return false;
    if (this.encoder !== encoder) this.describe(encoder);
    [this.tokens, this.prepared] = [found.tokens, found.prepared];
    status(this.remark(text));
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
    this.put(".tokens-count", number(count), other && against(count, other.tokens.length));
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
    const comparable = other && other.prepared === this.prepared;
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

  async copy() {
    const ids = JSON.stringify(this.tokens.map((token) => this.encoder.ids[token]));
    const button = this.part(".copy");
    try {
      await navigator.clipboard.writeText(ids);
      button.textContent = "Copied";
    } catch {
      button.textContent = copyOldWay(ids) ? "Copied" : "Could not copy";
    }
    setTimeout(() => { button.textContent = "Copy ids"; }, 1500);
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
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(1)} %`;
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

  /** Where the card lies at the bottom of a phone, scroll what it belongs to above it. */
  uncover() {
    const card = this.root.getBoundingClientRect(), at = this.anchor.getBoundingClientRect();
    const covered = at.bottom > card.top && at.top < card.bottom && card.bottom >= innerHeight;
    if (this.pinned && covered) scrollBy(0, at.bottom - card.top + 24);
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
    explained.textContent = length > LONGEST_TREE ? "It is too long for its merges to be drawn."
      : trees.length < 2 ? ""
      : "Merging the bytes of this token ends in several: " + (encoder.given.ignore_merges
        ? "it comes about only where it is a whole pre-token, which needs no merges."
        : "no text gives this token.");
  },

  /** Put the card below what it belongs to, or above where there is more room. */
  place() {
    const at = this.anchor.getClientRects()[0] ?? this.anchor.getBoundingClientRect();
    const gap = 8, below = innerHeight - at.bottom - 2 * gap, above = at.top - 2 * gap;
    const style = this.root.style;
    style.maxHeight = "";
    const goesBelow = below >= above || this.root.offsetHeight <= below;
    style.maxHeight = `${Math.max(160, Math.min(goesBelow ? below : above, 560))}px`;
    const {offsetWidth, offsetHeight} = this.root;
    style.top = `${goesBelow ? at.bottom + gap : at.top - gap - offsetHeight}px`;
    style.left = `${Math.max(gap, Math.min(at.left - 24, innerWidth - offsetWidth - gap))}px`;
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
let panels = [];
let latest = 0;        // the number of the newest request to encode

/** Encode the text in all panels and show it; a newer call takes over from an older one. */
async function update() {
  const request = ++latest, isWanted = () => request === latest;
  const special = element("special").checked;
  try {
    const done = await Promise.all(panels.map((panel) => panel.encode(text, special, isWanted)));
    if (!done.every(Boolean) || !isWanted()) return;
  } catch (error) {
    return isWanted() && fail(error);
  }
  element("failure").hidden = true;
  card.close();
  panels.forEach((panel, i) => panel.render(repaired(text), panels[1 - i]));
  remark();
  announce();
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
  element("failure").textContent = "This text could not be encoded, and what is below is of an "
    + `earlier one: ${reason}.`;
}

function remark() {
  const notes = [];
  if (repaired(text) !== text) notes.push("Lone surrogates in this text were read as U+FFFD.");
  if (text !== element("text").value && text.includes("\r")) {
    notes.push("The text was given with carriage returns, which count until it is edited.");
  }
  if (panels.length > 1 && panels[0].prepared !== panels[1].prepared) {
    notes.push("The two tokenizers prepare this text differently, so cuts are not compared.");
  }
  element("text-note").textContent = notes.join(" ");
  element("text-note").hidden = !notes.length;
}

let waiting = 0;

function typed() {
  text = element("text").value;
  clearTimeout(waiting);
  latest++;  // what is under way is out of date
  waiting = setTimeout(update, text.length > SHORT_TEXT ? 250 : 0);
}

function arrange() {
  const two = element("compare").checked;
  panels[0] ??= new Panel(0, update);
  if (two) panels[1] ??= new Panel(panels[0].index ? 0 : 1, update);
  else panels.length = 1;
  element("panels").replaceChildren(...panels.map((panel) => panel.root));
  element("panels").classList.toggle("two", panels.length > 1);
  return update();
}

const THEMES = {auto: ["◐", "as the system has it"], light: ["☀", "light"], dark: ["☾", "dark"]};

function nextTheme() {
  const names = Object.keys(THEMES), root = document.documentElement;
  const name = names[(names.indexOf(root.dataset.theme) + 1) % names.length];
  const [sign, words] = THEMES[name];
  root.dataset.theme = name;
  element("theme").textContent = sign;
  element("theme").title = `Colours: ${words}`;
  element("theme").setAttribute("aria-label", `Colours: ${words}`);
}

function start() {
  element("compare").checked = data.tokenizers.length > 1;
  element("compare").closest("label").hidden = data.tokenizers.length < 2;
  const hasSpecial = data.tokenizers.some(({added}) => added.some((token) => token.special));
  element("special").closest("label").hidden = !hasSpecial;
  element("special").checked = data.special;
  element("text").value = text;
  element("text").addEventListener("input", typed);
  element("compare").addEventListener("change", arrange);
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
  return arrange();
}

const ready = start();
