"use strict";
// Encodes text as the library does: same pre-tokens, same merges, same ids.
//
// Nothing here asks the browser what a letter is.  Whatever depends on a version of Unicode comes
// with the vocabulary: classes of characters, what is white space, how text is normalized.
//
// "Token" means the number of a token in order of ids; `encoder.ids[token]` is its id.  Added
// tokens (special ones among them) are numbered on behind the ordinary ones.

const SCAN_UP_TO = 32;      // parts; a longer pre-token goes through a heap
const CACHE_ENTRIES = 1 << 16;
const CACHED_LENGTH = 64;   // UTF-16 units; longer pre-tokens hardly come back
const STEP = 2048;          // pre-tokens between two chances to pause
const FIRST_CODE = 0x20;    // class 0 is U+0020 in the string that the split pattern matches

// -- What the page carries -----------------------------------------------------------------------

/** Undo base64 and deflate. */
async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads what page/packing.py wrote, in the same order. */
class Reader {
  constructor(bytes) {
    this.data = bytes;
    this.at = 0;
  }

  /** Read bytes, behind how many there are. */
  bytes() {
    const start = this.at + 4;
    const length = new DataView(this.data.buffer, this.data.byteOffset + this.at).getUint32(0, true);
    this.at = start + length;
    return this.data.subarray(start, this.at);
  }

  /** Read 32-bit numbers: first the low byte of each, then the next one, and so on. */
  numbers() {
    const planes = this.bytes();
    const count = planes.length / 4;
    const numbers = new Uint32Array(count);
    for (let i = 0; i < count; i++) {
      numbers[i] = planes[i] | planes[i + count] << 8 | planes[i + 2 * count] << 16
        | planes[i + 3 * count] << 24;
    }
    return numbers;
  }

  /** Read numbers of which each was written as what it exceeds the one before by, less one. */
  rising() {
    const numbers = this.numbers();
    for (let i = 1; i < numbers.length; i++) numbers[i] += numbers[i - 1] + 1;  // modulo 2**32
    return numbers;
  }

  /** Read a number for each code point, written as runs. */
  table(Kind = Uint8Array) {
    const firsts = this.rising();
    const values = this.numbers();
    const table = new Kind(0x110000);
    for (let i = 0; i < firsts.length; i++) table.fill(values[i], firsts[i], firsts[i + 1]);
    return table;
  }
}

// -- Normalizing ---------------------------------------------------------------------------------

const HANGUL = 0xac00, LEADING = 0x1100, VOWEL = 0x1161, TRAILING = 0x11a7;
const VOWELS = 21, TRAILINGS = 28, SYLLABLES = 19 * VOWELS * TRAILINGS;

/** One of NFC, NFD, NFKC and NFKD, by the tables in the page: those of one version of Unicode. */
class Normalizer {
  constructor(reader, form) {
    this.composes = form === "NFC" || form === "NFKC";
    this.unsettled = reader.table();  // 1: may change, or change what stands before it
    this.order = reader.table();      // canonical combining class
    this.parts = new Map();           // code point -> the code points it decomposes to
    const [chars, lengths, all] = [reader.rising(), reader.numbers(), reader.numbers()];
    let at = 0;
    chars.forEach((char, i) => {
      this.parts.set(char, Array.from(all.subarray(at, at += lengths[i])));
    });
    this.composed = new Map();        // first * 2**21 + second -> code point
    const [firsts, seconds, results] = [reader.numbers(), reader.numbers(), reader.numbers()];
    firsts.forEach((first, i) => this.composed.set(first * 2 ** 21 + seconds[i], results[i]));
  }

  /** Normalize text.  A character that is settled, with what follows it up to the next, is done
      on its own; most are alone and stay as they are. */
  normalize(text) {
    let done = 0, pieces = "";
    for (let at = 0; at < text.length;) {
      const start = at;
      at += text.codePointAt(at) > 0xffff ? 2 : 1;
      const first = at;
      while (at < text.length) {
        const char = text.codePointAt(at);
        if (!this.unsettled[char]) break;
        at += char > 0xffff ? 2 : 1;
      }
      if (at > first || this.unsettled[text.codePointAt(start)]) {
        pieces += text.slice(done, start) + this.cluster(text.slice(start, at));
        done = at;
      }
    }
    return done ? pieces + text.slice(done) : text;
  }

  cluster(text) {
    const ordered = this.ordered(Array.from(text).flatMap((char) => this.decompose(char)));
    const chars = this.composes ? this.compose(ordered) : ordered;
    let pieces = "";
    for (let i = 0; i < chars.length; i += 4096) {
      pieces += String.fromCodePoint(...chars.slice(i, i + 4096));
    }
    return pieces;
  }

  decompose(char) {
    const code = char.codePointAt(0), index = code - HANGUL;
    if (index < 0 || index >= SYLLABLES) return this.parts.get(code) ?? code;
    const parts = [LEADING + Math.floor(index / (VOWELS * TRAILINGS)),
      VOWEL + Math.floor(index / TRAILINGS) % VOWELS];
    return index % TRAILINGS ? [...parts, TRAILING + index % TRAILINGS] : parts;
  }

  /** Put marks in canonical order. */
  ordered(chars) {
    for (let start = 0; start < chars.length;) {
      let end = start;
      while (end < chars.length && this.order[chars[end]]) end++;
      if (end > start + 1) {
        const marks = chars.slice(start, end).sort((a, b) => this.order[a] - this.order[b]);
        marks.forEach((mark, i) => { chars[start + i] = mark; });
      }
      start = end + 1;
    }
    return chars;
  }

  compose(chars) {
    const out = [];
    let starter = -1, last = -1;  // where it is in `out`; the class of what stands behind it
    for (const char of chars) {
      const order = this.order[char];
      const joined = starter >= 0 && last < order ? this.join(out[starter], char) : undefined;
      if (joined !== undefined) {
        out[starter] = joined;
        continue;
      }
      [starter, last] = order ? [starter, order] : [out.length, -1];
      out.push(char);
    }
    return out;
  }

  join(first, second) {
    const leading = first - LEADING, vowel = second - VOWEL, syllable = first - HANGUL;
    if (leading >= 0 && leading < 19 && vowel >= 0 && vowel < VOWELS) {
      return HANGUL + (leading * VOWELS + vowel) * TRAILINGS;
    }
    const trailing = second - TRAILING;
    if (syllable >= 0 && syllable < SYLLABLES && syllable % TRAILINGS === 0
        && trailing > 0 && trailing < TRAILINGS) {
      return first + trailing;
    }
    return this.composed.get(first * 2 ** 21 + second);
  }
}

// -- Cutting into pre-tokens ---------------------------------------------------------------------

/** Cuts text at a split pattern, which is written over the classes of characters. */
class Splitter {
  constructor(reader, source) {
    this.classes = reader.table(Uint16Array);
    this.here = new RegExp(source, "y");
    this.next = new RegExp(source, "g");
  }

  /** Return where each pre-token ends; what no alternative matches is one, too. */
  *ends(text) {
    const [numbers, starts] = this.read(text);
    let at = 0;
    while (at < numbers.length) {
      this.here.lastIndex = at;
      if (this.here.test(numbers)) {
        at = this.here.lastIndex;
      } else {
        this.next.lastIndex = at;
        at = this.next.exec(numbers)?.index ?? numbers.length;
      }
      yield starts ? starts[at] : at;
    }
  }

  /** Return the string of class numbers, and where each character starts if some take two units. */
  read(text) {
    const codes = new Uint16Array(text.length), starts = new Uint32Array(text.length + 1);
    let count = 0;
    for (let at = 0; at < text.length; count++) {
      const char = text.codePointAt(at);
      codes[count] = FIRST_CODE + this.classes[char];
      starts[count] = at;
      at += char > 0xffff ? 2 : 1;
    }
    starts[count] = text.length;
    const numbers = new TextDecoder("utf-16le", {ignoreBOM: true}).decode(codes.subarray(0, count));
    return [numbers, count < text.length ? starts : null];
  }
}

// -- Added tokens --------------------------------------------------------------------------------

/** Finds added tokens in text: leftmost first, and of those the longest. */
class TokenFinder {
  constructor(added, space, word) {
    [this.space, this.word] = [space, word];
    this.tokens = new Map(added.map((token) => [token.written, token]));
    const longestFirst = [...this.tokens.keys()].sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
    this.pattern = new RegExp(escaped.join("|") || "(?!)", "g");
  }

  /** Yield [begin, end, token] of each between two places; a token may take in white space around
      it.  What stands before `start` was taken in by earlier ones. */
  *find(text, from = 0, to = text.length, start = from) {
    const within = text.slice(0, to);
    for (let at = from, found; (found = this.match(within, at));) {
      const token = this.tokens.get(found[0]);
      let begin = found.index, end = at = begin + found[0].length;
      if (token.single_word && this.touchesWord(text, begin, end)) continue;
      if (token.lstrip) {
        while (begin > start && this.space[text.charCodeAt(begin - 1)]) begin--;
        begin = Math.max(start, begin);
      }
      if (token.rstrip) while (end < text.length && this.space[text.charCodeAt(end)]) end++;
      if (begin < end) {
        start = end;
        yield [begin, end, token];
      }
    }
  }

  match(text, at) {
    this.pattern.lastIndex = at;
    return this.pattern.exec(text);
  }

  touchesWord(text, begin, end) {
    let before = begin - 1;
    if (before > 0 && (text.charCodeAt(before) & 0xfc00) === 0xdc00) before--;
    return (before >= 0 && this.word[text.codePointAt(before)])
      || (end < text.length && this.word[text.codePointAt(end)]);
  }
}

// -- Merging -------------------------------------------------------------------------------------

/** A hash table from a pair of tokens to the rank of its merge. */
class Ranks {
  constructor(lefts, rights) {
    let size = 16;
    while (size < 2 * lefts.length) size *= 2;
    this.mask = size - 1;
    this.entries = new Int32Array(3 * size).fill(-1);  // left, right, rank
    for (let rank = 0; rank < lefts.length; rank++) {
      const slot = this.slot(lefts[rank], rights[rank]);
      this.entries.set([lefts[rank], rights[rank], rank], slot);
    }
  }

  slot(left, right) {
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    hash = Math.imul(hash ^ hash >>> 15, 0x2c1b3c6d);
    for (let at = hash ^ hash >>> 13; ; at++) {
      const slot = 3 * (at & this.mask), found = this.entries[slot];
      if (found === -1 || (found === left && this.entries[slot + 1] === right)) return slot;
    }
  }

  /** Return the rank of a pair, or -1. */
  get(left, right) {
    return this.entries[this.slot(left, right) + 2];
  }
}

/** Numbers of which the lowest comes out first. */
class Heap {
  constructor(numbers) {
    this.items = numbers;
    for (let i = (numbers.length >> 1) - 1; i >= 0; i--) this.sink(i, numbers[i]);
  }

  push(item) {
    let at = this.items.push(item) - 1;
    for (let above; at && this.items[above = at - 1 >> 1] > item; at = above) {
      this.items[at] = this.items[above];
    }
    this.items[at] = item;
  }

  pop() {
    const lowest = this.items[0], last = this.items.pop();
    if (this.items.length) this.sink(0, last);
    return lowest;
  }

  sink(at, item) {
    const items = this.items, length = items.length;
    for (let below; (below = 2 * at + 1) < length; at = below) {
      if (below + 1 < length && items[below + 1] < items[below]) below++;
      if (items[below] >= item) break;
      items[at] = items[below];
    }
    items[at] = item;
  }
}

/** The tokens, their bytes and ids, and the merges. */
class Vocabulary {
  constructor(reader) {
    this.ids = reader.rising();
    this.lefts = reader.numbers();
    this.rights = reader.numbers();
    this.merged = reader.rising();      // rank -> token
    this.size = this.ids.length;
    this.makers = new Int32Array(this.size).fill(-1);  // token -> rank of the first merge to it
    for (let rank = this.merged.length - 1; rank >= 0; rank--) {
      this.makers[this.merged[rank]] = rank;
    }
    this.spell(reader.rising(), reader.numbers(), reader.bytes());
    this.ofByte = new Uint32Array(256);
    for (let token = this.size - 1; token >= 0; token--) {
      const start = this.starts[token];
      if (this.starts[token + 1] === start + 1) this.ofByte[this.text[start]] = token;
    }
    this.ranks = new Ranks(this.lefts, this.rights);
  }

  /** Find the bytes of each token: given for those that no merge makes, joined for the others. */
  spell(given, givenLengths, givenBytes) {
    const lengths = new Uint32Array(this.size), order = [];
    given.forEach((token, i) => { lengths[token] = givenLengths[i]; });
    for (let waiting = Array.from(this.merged.keys()); waiting.length;) {
      const later = [];
      for (const rank of waiting) {
        const [token, left, right] = [this.merged[rank], this.lefts[rank], this.rights[rank]];
        if (lengths[token]) continue;
        if (lengths[left] && lengths[right]) {
          lengths[token] = lengths[left] + lengths[right];
          order.push(rank);
        } else {
          later.push(rank);
        }
      }
      if (later.length === waiting.length) throw new Error("the vocabulary is damaged");
      waiting = later;
    }
    this.starts = new Uint32Array(this.size + 1);
    for (let token = 0; token < this.size; token++) {
      this.starts[token + 1] = this.starts[token] + lengths[token];
    }
    this.text = new Uint8Array(this.starts[this.size]);
    let at = 0;
    given.forEach((token, i) => {
      this.text.set(givenBytes.subarray(at, at += givenLengths[i]), this.starts[token]);
    });
    for (const rank of order) {
      const token = this.merged[rank], left = this.lefts[rank], start = this.starts[token];
      this.text.set(this.bytes(left), start);
      this.text.set(this.bytes(this.rights[rank]), start + lengths[left]);
    }
  }

  bytes(token) {
    return this.text.subarray(this.starts[token], this.starts[token + 1]);
  }

  /** Return the token that has these bytes, or -1. */
  find(bytes) {
    this.whole ??= this.index();
    for (let at = hashOf(bytes); ; at++) {
      const token = this.whole[at & this.whole.length - 1];
      if (token === -1 || sameBytes(this.bytes(token), bytes)) return token;
    }
  }

  index() {
    let size = 16;
    while (size < 2 * this.size) size *= 2;
    const table = new Int32Array(size).fill(-1);
    for (let token = 0; token < this.size; token++) {
      let at = hashOf(this.bytes(token)) & size - 1;
      while (table[at] !== -1) at = at + 1 & size - 1;
      table[at] = token;
    }
    return table;
  }

  /** Apply every merge that fits, lowest rank first and of equals leftmost. */
  merge(tokens) {
    return tokens.length <= SCAN_UP_TO ? this.mergeByScanning(tokens) : this.mergeByHeap(tokens);
  }

  mergeByScanning(tokens) {
    const ranks = [];
    for (let i = 1; i < tokens.length; i++) ranks.push(this.ranks.get(tokens[i - 1], tokens[i]));
    for (;;) {
      let i = -1;
      for (let j = 0; j < ranks.length; j++) {
        if (ranks[j] !== -1 && (i === -1 || ranks[j] < ranks[i])) i = j;
      }
      if (i === -1) return tokens;
      tokens[i] = this.merged[ranks[i]];
      tokens.splice(i + 1, 1);
      ranks.splice(i, 1);
      if (i) ranks[i - 1] = this.ranks.get(tokens[i - 1], tokens[i]);
      if (i < ranks.length) ranks[i] = this.ranks.get(tokens[i], tokens[i + 1]);
    }
  }

  /** Do the same in O(n log n): entries of the heap are rank * n + place. */
  mergeByHeap(tokens) {
    const n = tokens.length, parts = Int32Array.from(tokens), entries = [];
    const after = new Int32Array(n + 1), before = new Int32Array(n + 1);
    for (let i = 0; i < n; i++) {
      [after[i], before[i]] = [i + 1, i - 1];
      const rank = i + 1 < n ? this.ranks.get(parts[i], parts[i + 1]) : -1;
      if (rank !== -1) entries.push(rank * n + i);
    }
    const heap = new Heap(entries);
    while (heap.items.length) {
      const entry = heap.pop(), rank = Math.floor(entry / n), i = entry - rank * n, j = after[i];
      // A part that was merged into its left neighbor is -1; then the pair is no longer there.
      if (j === n || parts[i] === -1 || this.ranks.get(parts[i], parts[j]) !== rank) continue;
      const k = after[i] = after[j], h = before[i];
      before[k] = i;
      [parts[i], parts[j]] = [this.merged[rank], -1];
      const right = k < n ? this.ranks.get(parts[i], parts[k]) : -1;
      if (right !== -1) heap.push(right * n + i);
      const left = h >= 0 ? this.ranks.get(parts[h], parts[i]) : -1;
      if (left !== -1) heap.push(left * n + h);
    }
    return Array.from(parts.filter((part) => part !== -1));
  }

  /** Return how a token comes about: {token, rank, left, right}, down to single bytes.  There are
      several such trees where merging its bytes does not end in one token. */
  trees(token) {
    const nodes = Array.from(this.bytes(token), (byte) => ({token: this.ofByte[byte]}));
    while (nodes.length > 1) {
      let lowest = -1, at = -1;
      for (let i = 1; i < nodes.length; i++) {
        const rank = this.ranks.get(nodes[i - 1].token, nodes[i].token);
        if (rank !== -1 && (at === -1 || rank < lowest)) [lowest, at] = [rank, i - 1];
      }
      if (at === -1) break;
      const [left, right] = nodes.slice(at, at + 2);
      nodes.splice(at, 2, {token: this.merged[lowest], rank: lowest, left, right});
    }
    return nodes;
  }
}

function hashOf(bytes) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ bytes[i], 0x01000193);
  return hash ^ hash >>> 15;
}

function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

// -- Encoding ------------------------------------------------------------------------------------

/** Lone surrogates are no characters; like the browser's own encoder, read them as U+FFFD. */
function repaired(text) {
  return text.replace(/[\ud800-\udfff]/gu, "\ufffd");
}

/** A tokenizer of the library, from what page/packing.py wrote about it. */
class Encoder {
  constructor(given, bytes) {
    const reader = new Reader(bytes);
    this.given = given;
    this.vocabulary = new Vocabulary(reader);
    this.splitter = new Splitter(reader, given.source);
    this.space = reader.table();
    this.word = given.added.some((token) => token.single_word) ? reader.table() : null;
    this.normalizer = given.normalizer ? new Normalizer(reader, given.normalizer) : null;
    this.added = given.added.map((token, i) => ({...token, token: this.vocabulary.size + i}));
    this.ids = new Uint32Array(this.vocabulary.size + this.added.length);
    this.ids.set(this.vocabulary.ids);
    for (const {token, id} of this.added) this.ids[token] = id;
    this.control = this.added.filter((token) => !token.is_text);
    this.controlFinder = new TokenFinder(
      this.control.map((token) => ({...token, written: token.content})), this.space, this.word);
    this.found = new Map();  // by a name, what finds some of the added tokens
    this.cache = new Map();
  }

  static async load(given) {
    return new Encoder(given, await inflate(given.packed));
  }

  /** Encode a text.
   * @param special whether special tokens in it are recognized, or ordinary text.
   * @param trusted for a conversation, [begin, end] of each part that the template wrote: control
   *   tokens are recognized there alone, whatever `special` says. */
  encode(text, special = false, trusted = null) {
    const work = this.encoding(text, special, trusted);
    for (;;) {
      const {done, value} = work.next();
      if (done) return value;
    }
  }

  /** Do what `encode` does, and pause again and again: yields how much is done, from 0 to 1. */
  *encoding(text, special = false, trusted = null) {
    if (!trusted) return yield* this.encodeParts(this.parts(repaired(text), special), text.length);
    const parts = [...this.conversation(repaired(text), trusted)];
    const found = yield* this.encodeParts(parts, text.length);
    return this.spellsControl(found.tokens, parts)
      ? yield* this.encodeParts(this.cutControl(parts), text.length) : found;
  }

  *encodeParts(parts, total) {
    const tokens = [];
    let prepared = "";
    for (const part of parts) {
      if (typeof part === "string") {
        yield* this.cut(part, tokens, prepared.length, total);
        prepared += part;
      } else {
        tokens.push(part.token);
        prepared += part.content;
      }
    }
    return {tokens, prepared};
  }

  *cut(text, tokens, before, total) {
    let start = 0, count = 0;
    for (const end of this.splitter.ends(text)) {
      for (const token of this.pretoken(text.slice(start, end))) tokens.push(token);
      start = end;
      if (++count % STEP === 0) yield Math.min(1, (before + end) / total);
    }
  }

  /** Return the tokens of a pre-token. */
  pretoken(text) {
    const known = this.cache.get(text);
    if (known) return known;
    const bytes = new TextEncoder().encode(text);
    const vocabulary = this.vocabulary;
    const whole = this.given.ignore_merges ? vocabulary.find(bytes) : -1;
    const tokens = whole === -1
      ? vocabulary.merge(Array.from(bytes, (byte) => vocabulary.ofByte[byte])) : [whole];
    if (text.length <= CACHED_LENGTH) {
      if (this.cache.size >= CACHE_ENTRIES) this.cache.clear();
      // A slice would keep the whole text alive; what is decoded does not.
      this.cache.set(new TextDecoder("utf-8", {ignoreBOM: true}).decode(bytes), tokens);
    }
    return tokens;
  }

  /** Yield the added tokens in a text, and the text between them, ready to be cut. */
  parts(text, special) {
    return this.between(text, 0, text.length,
      this.finders(special, (token) => special || !token.special));
  }

  *between(text, from, to, [raw, normalized]) {
    let done = from;
    for (const [begin, end, token] of raw.tokens.size ? raw.find(text, from, to) : []) {
      yield* this.ordinary(text.slice(done, begin), normalized);
      yield token;
      done = end;
    }
    yield* this.ordinary(text.slice(done, to), normalized);
  }

  // -- Conversations ---

  /** Yield the same of a conversation: control tokens come out of the template's own text alone. */
  *conversation(text, trusted) {
    const finders = this.finders("conversation", (token) => token.is_text);
    let done = 0;
    for (const [from, to] of trusted) {
      for (const [begin, end, token] of this.controlFinder.find(text, from, to, done)) {
        yield* this.between(text, done, begin, finders);
        yield token;
        done = end;
      }
    }
    yield* this.between(text, done, text.length, finders);
  }

  /** Tell whether merges gave a control token to its own text, where one was learned. */
  spellsControl(tokens, parts) {
    const ids = new Set(this.control.map(({id}) => id));
    if (!this.vocabulary.ids.some((id) => ids.has(id))) return false;
    const written = parts.filter((part) => ids.has(part.id)).length;
    return tokens.filter((token) => ids.has(this.ids[token])).length > written;
  }

  /** Cut text behind the first character of each control token in it, so that none comes about. */
  *cutControl(parts) {
    const normalize = (text) => this.normalizer?.normalize(text) ?? text;
    const contents = this.control.flatMap(({content}) => [content, normalize(content)])
      .filter(Boolean);
    for (const part of parts) {
      let done = 0;
      for (let at = 0; typeof part === "string" && at < part.length; at++) {
        if (!contents.some((content) => part.startsWith(content, at))) continue;
        const end = at + (part.codePointAt(at) > 0xffff ? 2 : 1);
        yield part.slice(done, end);
        done = end;
      }
      yield done ? part.slice(done) : part;
    }
  }

  *ordinary(piece, normalized) {
    const text = this.normalizer ? this.normalizer.normalize(piece) : piece;
    let done = 0;
    for (const [begin, end, token] of normalized.tokens.size ? normalized.find(text) : []) {
      if (begin > done) yield this.prefixed(text.slice(done, begin));
      yield token;
      done = end;
    }
    if (done < text.length) yield this.prefixed(text.slice(done));
  }

  prefixed(text) {
    return this.given.prefix_space && text[0] !== " " ? " " + text : text;
  }

  /** Return what finds added tokens in text as given, and what does in normalized text. */
  finders(name, isSought) {
    if (!this.found.has(name)) {
      const sought = this.added.filter(isSought);
      this.found.set(name, [false, true].map((normalized) => new TokenFinder(
        sought.filter((token) => token.normalized === normalized), this.space, this.word)));
    }
    return this.found.get(name);
  }

  isAdded(token) {
    return token >= this.vocabulary.size;
  }

  /** Return what a token stands for, as bytes. */
  bytes(token) {
    return this.isAdded(token)
      ? new TextEncoder().encode(this.added[token - this.vocabulary.size].content)
      : this.vocabulary.bytes(token);
  }
}
