//! JSON as Go's `encoding/json` reads it: [`Json`].
//!
//! The other programs of the protocols here are written in Go, and what they can read decides what a ledger or a
//! lock file may hold. Their reader differs from most others:
//!
//! | input | how it is read |
//! |---|---|
//! | nesting | up to 10,000 levels |
//! | `1e999` | a number: its size matters only to a field that holds one |
//! | a byte that is not UTF-8, half of a surrogate pair | U+FFFD |
//! | a key that occurs twice | the last one that is not `null` counts |
//! | `"Node_ID"` | the same key as `"node_id"` |
//!
//! A value is checked once and then read in place. Nothing here is recursive, so no input can exhaust
//! the stack.

use std::fmt::{self, Write};

/// How deep values may be nested.
const MAX_DEPTH: usize = 10_000;

/// What is wrong with bytes that end within a value.
const TOO_SHORT: &str = "it ends too early";

/// Why bytes are not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    what: &'static str,
    at: usize,
}

impl SyntaxError {
    /// Whether the bytes end within the value.
    pub fn is_end(&self) -> bool {
        self.what == TOO_SHORT
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at.saturating_add(1))
    }
}

/// A valid JSON value, with no white space around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a [u8]);

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    Text,
    /// An array.
    List,
    /// An object.
    Object,
}

impl JsonKind {
    /// Its name, with an article.
    pub fn words(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a truth value",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

impl<'a> Json<'a> {
    /// `null`.
    pub const NULL: Json<'static> = Json(b"null");

    /// Checks that the bytes are one JSON value.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner { bytes, at: 0 };
        scanner.skip_space();
        let start = scanner.at;
        scanner.value()?;
        let end = scanner.at;
        scanner.skip_space();
        if scanner.peek().is_some() {
            return Err(scanner.error("there is more after the value"));
        }
        Ok(Self(bytes.get(start..end).unwrap_or_default()))
    }

    /// Its kind.
    pub fn kind(self) -> JsonKind {
        match self.0.first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::List,
            Some(b'"') => JsonKind::Text,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'n') | None => JsonKind::Null,
            Some(_) => JsonKind::Number,
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The keys and values of an object, in order; nothing for any other value.
    pub fn members(self) -> impl Iterator<Item = (String, Json<'a>)> {
        let mut parts = JsonParts::of(self, JsonKind::Object);
        std::iter::from_fn(move || {
            let key = parts.next()?;
            Some((key.decoded(), parts.next()?))
        })
    }

    /// The values of a list, in order; nothing for any other value.
    pub fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut parts = JsonParts::of(self, JsonKind::List);
        std::iter::from_fn(move || parts.next())
    }

    /// The field that a path of keys leads to, if it is there and not `null`.
    pub fn field(self, path: &[&str]) -> Option<Json<'a>> {
        let [key, rest @ ..] = path else {
            return (self.kind() != JsonKind::Null).then_some(self);
        };
        let found = self.members().filter(|(name, _)| is_same_key(name, key));
        found.filter_map(|(_, value)| value.field(rest)).last()
    }

    /// The text of a string.
    pub fn text(self) -> Option<String> {
        (self.kind() == JsonKind::Text).then(|| self.decoded())
    }

    /// What is between the quotes of a string, as it is written.
    pub fn raw_text(self) -> Option<&'a [u8]> {
        self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")
    }

    fn decoded(self) -> String {
        let mut out = String::new();
        for part in StringParts(self.raw_text().unwrap_or_default()) {
            match part {
                StringPart::Plain(text) => out.push_str(text),
                StringPart::Escape(_, c) => out.push(c),
                StringPart::Invalid => out.push(char::REPLACEMENT_CHARACTER),
            }
        }
        out
    }

    /// The same value without white space, in valid UTF-8 and with no half of a surrogate pair, for
    /// readers that are stricter than Go's.
    pub fn tidy(self) -> String {
        let mut out = String::with_capacity(self.0.len());
        self.rewrite(&mut out, |out, c| out.push(c));
        out
    }

    /// The same value as Go's encoder writes it: without white space, and with `<`, `>`, `&` and two
    /// line separators escaped. Numbers, escapes and the order of keys stay as they are.
    pub fn compact(self) -> String {
        let mut out = String::with_capacity(self.0.len());
        self.rewrite(&mut out, |out, c| match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        });
        out
    }

    fn rewrite(self, out: &mut String, mut plain: impl FnMut(&mut String, char)) {
        let mut rest = self.0;
        while let Some((&byte, after)) = rest.split_first() {
            if byte != b'"' {
                if !is_space(byte) {
                    out.push(char::from(byte));
                }
                rest = after;
                continue;
            }
            let mut scanner = Scanner { bytes: rest, at: 0 };
            // Valid: it was checked.
            let _ = scanner.string();
            let (string, after) = rest.split_at_checked(scanner.at).unwrap_or((rest, &[]));
            out.push('"');
            for part in StringParts(Json(string).raw_text().unwrap_or_default()) {
                match part {
                    StringPart::Plain(text) => text.chars().for_each(|c| plain(out, c)),
                    StringPart::Escape(_, char::REPLACEMENT_CHARACTER) => out.push_str("\\ufffd"),
                    StringPart::Escape(written, _) => out.push_str(written),
                    StringPart::Invalid => out.push(char::REPLACEMENT_CHARACTER),
                }
            }
            out.push('"');
            rest = after;
        }
    }
}

/// Whether Go takes two keys for the same field.
pub fn is_same_key(a: &str, b: &str) -> bool {
    let fold = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    a.chars().map(fold).eq(b.chars().map(fold))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The values in a list, or the keys and values in an object.
struct JsonParts<'a> {
    scanner: Scanner<'a>,
}

impl<'a> JsonParts<'a> {
    fn of(value: Json<'a>, kind: JsonKind) -> Self {
        let bytes = if value.kind() == kind { value.0 } else { &[] };
        Self {
            scanner: Scanner { bytes, at: 1 },
        }
    }

    fn next(&mut self) -> Option<Json<'a>> {
        let scanner = &mut self.scanner;
        while matches!(scanner.peek(), Some(b',' | b':')) || scanner.peek().is_some_and(is_space) {
            scanner.at += 1;
        }
        let start = scanner.at;
        // The end of the list or object, or nothing.
        scanner.value().ok()?;
        scanner.bytes.get(start..scanner.at).map(Json)
    }
}

/// A part of a string.
enum StringPart<'a> {
    /// As it is.
    Plain(&'a str),
    /// An escape, and the character that it stands for.
    Escape(&'a str, char),
    /// A byte that is not UTF-8.
    Invalid,
}

/// The parts of a valid string, from what is between its quotes.
struct StringParts<'a>(&'a [u8]);

impl<'a> Iterator for StringParts<'a> {
    type Item = StringPart<'a>;

    fn next(&mut self) -> Option<StringPart<'a>> {
        let rest = self.0;
        if rest.is_empty() {
            return None;
        }
        let plain = rest.iter().take_while(|byte| **byte != b'\\').count();
        let (plain, escape) = rest.split_at_checked(plain)?;
        if !plain.is_empty() {
            let (text, used) = match std::str::from_utf8(plain) {
                Ok(text) => (text, plain.len()),
                Err(error) => {
                    let valid = plain.get(..error.valid_up_to()).unwrap_or_default();
                    (
                        std::str::from_utf8(valid).unwrap_or_default(),
                        error.valid_up_to(),
                    )
                }
            };
            if used == 0 {
                self.0 = rest.get(1..)?;
                return Some(StringPart::Invalid);
            }
            self.0 = rest.get(used..)?;
            return Some(StringPart::Plain(text));
        }
        let hex = |at: usize| {
            let digits = std::str::from_utf8(escape.get(at..at + 4)?).ok()?;
            u32::from_str_radix(digits, 16).ok()
        };
        let (length, c) = match escape.get(1)? {
            b'u' => {
                let first = hex(2)?;
                let second = escape.get(6..8).filter(|next| *next == b"\\u");
                let second = second
                    .and_then(|_| hex(8))
                    .filter(|_| (0xd800..0xdc00).contains(&first))
                    .filter(|low| (0xdc00..0xe000).contains(low));
                match second {
                    Some(low) => {
                        let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                        (12, char::from_u32(code))
                    }
                    None => (6, char::from_u32(first)),
                }
            }
            b'b' => (2, Some('\u{8}')),
            b'f' => (2, Some('\u{c}')),
            b'n' => (2, Some('\n')),
            b'r' => (2, Some('\r')),
            b't' => (2, Some('\t')),
            other => (2, Some(char::from(*other))),
        };
        let (written, after) = escape.split_at_checked(length)?;
        self.0 = after;
        let written = std::str::from_utf8(written).ok()?;
        Some(StringPart::Escape(
            written,
            c.unwrap_or(char::REPLACEMENT_CHARACTER),
        ))
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// What is wrong here: the end, or this.
    fn error(&self, what: &'static str) -> SyntaxError {
        let what = self.peek().map_or(TOO_SHORT, |_| what);
        SyntaxError { what, at: self.at }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), SyntaxError> {
        if self.peek() != Some(byte) {
            return Err(self.error(what));
        }
        self.at += 1;
        Ok(())
    }

    /// A value that begins here.
    fn value(&mut self) -> Result<(), SyntaxError> {
        /// What is open around the current place.
        #[derive(PartialEq)]
        enum Open {
            List,
            Object,
        }
        let mut open: Vec<Open> = Vec::new();
        loop {
            let mut is_complete = true;
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    let (kind, end) = match byte {
                        b'{' => (Open::Object, b'}'),
                        _ => (Open::List, b']'),
                    };
                    if open.len() == MAX_DEPTH {
                        return Err(self.error("it exceeded max depth"));
                    }
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(end) {
                        self.at += 1;
                    } else {
                        is_complete = false;
                        if kind == Open::Object {
                            self.key()?;
                        }
                        open.push(kind);
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                _ => return Err(self.error("a value is expected")),
            }
            while is_complete {
                let Some(around) = open.last() else {
                    return Ok(());
                };
                self.skip_space();
                match (self.peek(), around) {
                    (Some(b','), around) => {
                        let is_object = *around == Open::Object;
                        self.at += 1;
                        self.skip_space();
                        if is_object {
                            self.key()?;
                        }
                        is_complete = false;
                    }
                    (Some(b'}'), Open::Object) | (Some(b']'), Open::List) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return Err(self.error("a comma or an end is expected")),
                }
            }
        }
    }

    /// A key with its colon, and the space up to the value.
    fn key(&mut self) -> Result<(), SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a key is expected"));
        }
        self.string()?;
        self.skip_space();
        self.expect(b':', "a colon is expected")?;
        self.skip_space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        self.expect(b'"', "a text is expected")?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.at += 1;
                        }
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return Err(self.error("four hexadecimal digits are expected"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.error("it is not an escape")),
                    }
                }
                Some(0x20..) => self.at += 1,
                _ => return Err(self.error("a control character must be escaped")),
            }
        }
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a digit is expected"));
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), SyntaxError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            if word.starts_with(rest) {
                self.at = self.bytes.len();
            }
            return Err(self.error("a value is expected"));
        }
        self.at += word.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Json<'_> {
        match Json::parse(text) {
            Ok(json) => json,
            Err(error) => panic!("{}: {error}", String::from_utf8_lossy(text)),
        }
    }

    #[test]
    fn what_go_reads_is_read() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in [
            " {} ",
            "[]",
            "[ ]",
            "{ \"a\" : [ 1 , -0.5e+10 , 1e999 , true , false , null , { } ] }",
            r#""\ud800""#,
            r#""\udc00\ud800\u0041 \/\b\f\n\r\t\"\\""#,
            &nested(300),
            &nested(10_000),
        ] {
            parse(text.as_bytes());
        }
        parse(b"\"\xff\xfe \xe2\x82\"");
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in [
            "",
            " ",
            "{",
            "[",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "{]",
            "[}",
            "{} x",
            "\u{feff}{}",
            "\u{c}{}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "True",
            "NaN",
            "\"",
            "\"\n\"",
            r#""\x""#,
            r#""\u12g4""#,
            "{a:1}",
            "{'a':1}",
            &nested(10_001),
        ] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn texts_are_decoded_as_go_does() {
        for (raw, text) in [
            (br#""plain""#.as_slice(), "plain"),
            (br#""\u0041\n\/""#, "A\n/"),
            (br#""\ud83d\ude00""#, "😀"),
            (br#""\ud83d""#, "\u{fffd}"),
            (br#""\ud83dx\ude00""#, "\u{fffd}x\u{fffd}"),
            (br#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (b"\"a\xffb\"", "a\u{fffd}b"),
            (b"\"\xe2\x82x\"", "\u{fffd}\u{fffd}x"),
        ] {
            assert_eq!(parse(raw).text().unwrap(), text);
        }
        assert_eq!(parse(b"7").text(), None);
    }

    #[test]
    fn the_last_field_that_is_not_null_counts_in_any_letter_case() {
        let json = parse(br#"{"a":1,"A":{"b":[2]},"a":null,"\u0061":{"B":[3,{"c":"d"}]}}"#);
        assert_eq!(
            json.field(&["a", "b"]).unwrap().bytes(),
            br#"[3,{"c":"d"}]"#
        );
        assert!(json.field(&["a", "c"]).is_none());
        assert!(json.field(&["x"]).is_none());
        assert!(is_same_key("timeſtamp", "TIMESTAMP"));
        let list: Vec<_> = json.field(&["a", "b"]).unwrap().elements().collect();
        assert_eq!(list.len(), 2);
        assert_eq!(json.members().count(), 4);
        assert_eq!(parse(b"[ ]").elements().count(), 0);
        assert_eq!(parse(b"{ }").members().count(), 0);
    }

    #[test]
    fn a_value_is_written_again_with_only_the_necessary_changes() {
        let json = parse(b"{ \"a\\u0062\" : \"<\\ud800\\/\xff>\" , \"n\" : 1e999 }");
        assert_eq!(
            json.tidy(),
            "{\"a\\u0062\":\"<\\ufffd\\/\u{fffd}>\",\"n\":1e999}"
        );
        let json =
            parse("{ \"s\" : \" \\\" < > & \\\\ \u{2028}\", \"t\":\"x\\\\\\\"  y\" }".as_bytes());
        assert_eq!(
            json.compact(),
            "{\"s\":\" \\\" \\u003c \\u003e \\u0026 \\\\ \\u2028\",\"t\":\"x\\\\\\\"  y\"}"
        );
    }
}
