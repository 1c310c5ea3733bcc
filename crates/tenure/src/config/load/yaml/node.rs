//! The YAML of a configuration file as a small tree that knows where each value is written.
//!
//! `serde-saphyr` parses the text. What this module adds is the tree itself, because serde's own
//! data model has no place for the three things that the settings need together:
//!
//! 1. Every key and value has its line and column ([`Spanned`]). A value that an alias refers to is
//!    at the alias.
//! 2. A plain value is the text that was written: `007`, `1e3` and `True` are not turned into
//!    numbers and booleans, just as in an environment variable.
//! 3. An explicit tag is noticed ([`Tagged`]). A tag that changes nothing is allowed, any other is
//!    reported as such.
//!
//! It is safe to read a hostile file: depth, nodes and the copies that aliases make are limited by
//! the parser's budget ([`options`]), and exceeding a limit is an error at that place.
//!
//! It does not keep the items of lists, which no setting has.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{
    DuplicateKeyPolicy, Error, ExternalMessageSource, Location, MergeKeyPolicy, MessageFormatter,
    NonFiniteFloatPolicy, Options, Spanned, Tagged, UserMessageFormatter,
};

use super::super::error::{ConfigProblem, shortened};

/// How many mappings and lists may be inside one another. A configuration needs three.
const MAX_DEPTH: usize = 8;

/// How many keys and values a file may have. A complete configuration in the long form has 120.
const MAX_NODES: usize = 4096;

/// How many parser events aliases may repeat in all.
const MAX_ALIAS_EVENTS: usize = 4096;

/// A key or a value, and where it is written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) content: Content,
}

/// What a key or a value is.
#[derive(Debug)]
pub(super) enum Content {
    /// No value, or `null`.
    Empty,
    /// A single value, as it was written.
    Text(String),
    List,
    Mapping(Vec<Pair>),
    /// A value with a tag that has no meaning here.
    Tagged,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Node,
    pub(super) value: Node,
}

/// A position in the text. Lines and columns count from one, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Why a text has no tree, and where.
#[derive(Debug)]
pub(super) struct YamlFault {
    pub(super) position: Position,
    pub(super) problem: ConfigProblem,
}

/// Reads the tree of `text`. A text without content is [`Content::Empty`].
pub(super) fn read(text: &str) -> Result<Node, YamlFault> {
    serde_saphyr::from_str_with_options::<RawNode>(text, options())
        .map(|raw| raw.resolve(text))
        .map_err(|error| fault(&error))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            // Each node begins and may end; the document and the stream do, too.
            max_events: 4 * MAX_NODES,
            max_recorded_anchor_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIAS_EVENTS,
            max_replay_stack_depth: MAX_DEPTH,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // `<<` is a key that no section has, and is reported as one.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

impl Node {
    /// The text of a single value, or `None` for anything else.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What this is, in words that complete "it is ...".
    pub(super) fn shape(&self) -> &'static str {
        match &self.content {
            Content::Empty => "empty",
            Content::Text(_) => "a single value",
            Content::List => "a list",
            Content::Mapping(_) => "a mapping",
            Content::Tagged => "a value with a tag",
        }
    }
}

/// A node as the parser hands it out, before the text of plain values is looked up.
struct RawNode(Spanned<Tagged<RawContent>>);

enum RawContent {
    Empty,
    Text(String),
    /// A plain value that the parser takes for a number or a boolean, as the parser writes it.
    Inferred(String),
    List,
    Mapping(Vec<(RawNode, RawNode)>),
}

impl RawNode {
    fn resolve(self, text: &str) -> Node {
        let Self(Spanned {
            value: Tagged(content, tag),
            referenced,
            defined,
        }) = self;
        let content = match content {
            _ if tag.as_deref().is_some_and(|tag| !changes_nothing(tag)) => Content::Tagged,
            RawContent::Empty => Content::Empty,
            RawContent::Text(text) => Content::Text(text),
            // A tagged value may be quoted; the parser has taken the quotes off.
            RawContent::Inferred(value) if tag.is_some() => Content::Text(value),
            RawContent::Inferred(value) => {
                Content::Text(written(text, defined).map_or(value, str::to_owned))
            }
            RawContent::List => Content::List,
            RawContent::Mapping(entries) => {
                let resolve = |(key, value): (Self, Self)| Pair {
                    key: key.resolve(text),
                    value: value.resolve(text),
                };
                Content::Mapping(entries.into_iter().map(resolve).collect())
            }
        };
        Node {
            position: referenced.into(),
            content,
        }
    }
}

/// Whether the parser holds a value to this tag, so that the value is what the tag says. `!!null`
/// is not among them: the parser accepts any text after it.
fn changes_nothing(tag: &str) -> bool {
    tag.strip_prefix("tag:yaml.org,2002:")
        .is_some_and(|name| matches!(name, "str" | "int" | "float" | "bool" | "map" | "seq"))
}

/// The text at a location.
fn written(text: &str, location: Location) -> Option<&str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    text.get(start..start.checked_add(length)?)
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = RawContent;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<RawContent, E> {
        Ok(RawContent::Empty)
    }

    fn visit_str<E>(self, text: &str) -> Result<RawContent, E> {
        Ok(RawContent::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawContent, E> {
        Ok(RawContent::Inferred(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawContent, E> {
        Ok(RawContent::Inferred(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawContent, E> {
        Ok(RawContent::Inferred(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawContent, E> {
        Ok(RawContent::Inferred(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawContent, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(RawContent::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawContent, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawContent::Mapping(entries))
    }
}

fn fault(error: &Error) -> YamlFault {
    // For an error inside a value that an alias repeats, this is the alias.
    let position = error.location().unwrap_or(Location::UNKNOWN).into();
    let mut cause = error;
    while let Error::AliasError { error, .. } = cause {
        cause = error;
    }
    YamlFault {
        position,
        problem: problem(cause),
    }
}

fn problem(error: &Error) -> ConfigProblem {
    let words = match error {
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => return ConfigProblem::TooDeep(MAX_DEPTH),
            _ => return ConfigProblem::TooMuch,
        },
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => return ConfigProblem::TooMuch,
        // The parser looks past the brackets of a possible key before it hands out the first of
        // them, and has a limit of its own meanwhile.
        Error::ExternalMessage { source, .. } if is_recursion_limit(source) => {
            return ConfigProblem::TooDeep(MAX_DEPTH);
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key {}", shortened(key))
        }
        Error::MultipleDocuments { .. } => "a second document begins here".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "this alias is inside the value it refers to".to_owned()
        }
        Error::UnknownAnchor { .. } => "this alias refers to an unknown anchor".to_owned(),
        Error::InvalidScalar { .. } | Error::UnsupportedTag { .. } => {
            "this value contradicts its tag".to_owned()
        }
        other => shortened(&UserMessageFormatter.format_message(other)),
    };
    ConfigProblem::BadYaml(words)
}

fn is_recursion_limit(source: &ExternalMessageSource) -> bool {
    matches!(source, ExternalMessageSource::Parser(error)
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded))
}

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self {
            line: count(location.line()),
            column: count(location.column()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> Node {
        read(text).unwrap()
    }

    fn entries(node: &Node) -> &[Pair] {
        match &node.content {
            Content::Mapping(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    /// The line, the column and the words.
    fn refusal(text: &str) -> (usize, usize, String) {
        let YamlFault { position, problem } = read(text).unwrap_err();
        (position.line, position.column, problem.to_string())
    }

    #[track_caller]
    fn assert_too_deep(text: &str, line: usize, column: usize) {
        let words = ConfigProblem::TooDeep(MAX_DEPTH).to_string();
        let start: String = text.chars().take(40).collect();
        assert_eq!(refusal(text), (line, column, words), "{start}");
    }

    #[test]
    fn a_tree_of_the_greatest_depth_is_read_and_one_level_more_is_refused_where_it_begins() {
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
            let nested = |depth| format!("{}x{}\n", open.repeat(depth), close.repeat(depth));
            root(&nested(MAX_DEPTH));
            assert_too_deep(&nested(MAX_DEPTH + 1), 1, open.len() * MAX_DEPTH + 1);
        }
        let lines = |depth| {
            (0..depth).fold(String::new(), |text, level| {
                text + &" ".repeat(level) + "a:\n"
            })
        };
        root(&lines(MAX_DEPTH));
        assert_too_deep(&lines(MAX_DEPTH + 1), MAX_DEPTH + 1, MAX_DEPTH + 1);
    }

    #[test]
    fn the_deepest_nesting_that_fits_into_a_file_is_refused_without_overflowing_the_stack() {
        for (open, column) in [("- ", 17), ("? ", 17), ("- ? ", 17)] {
            assert_too_deep(&open.repeat(60_000 / open.len()), 1, column);
        }
        // Brackets may begin a key, and the parser looks for its end before it reports anything.
        for (open, column) in [("[", 256), ("{", 256), ("{a: ", 1021), ("[{a: ", 637)] {
            assert_too_deep(&open.repeat(60_000 / open.len()), 1, column);
        }
    }

    #[test]
    fn an_alias_stands_for_its_anchor_at_its_own_position() {
        let root = root("a: &x\n  b: 007\nd: *x\n");
        let [_, d] = entries(&root) else { panic!() };
        assert_eq!(d.value.position, Position { line: 3, column: 4 });
        let [b] = entries(&d.value) else { panic!() };
        assert_eq!(b.value.text(), Some("007"));
    }

    #[test]
    fn an_alias_is_as_deep_as_its_anchor() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
            format!("a: &x {open}{close}\nb: [*x]\n")
        };
        root(&nested(MAX_DEPTH));
        assert_too_deep(&nested(MAX_DEPTH + 1), 2, 5);
    }

    #[test]
    fn aliases_of_aliases_are_refused_before_they_grow_deep_or_large() {
        // Every line is a mapping to as many aliases of the line before.
        let line = |i: usize, width: usize| {
            let alias = |key: usize| format!("{key}: *a{}", i - 1);
            let aliases: Vec<String> = (0..width).map(alias).collect();
            format!("a{i}: &a{i} {{{}}}\n", aliases.join(", "))
        };
        let mappings = |lines: usize, width: usize| {
            (1..=lines).fold("a0: &a0 x\n".to_owned(), |text, i| text + &line(i, width))
        };
        root(&mappings(MAX_DEPTH - 1, 1));
        assert_too_deep(&mappings(500, 1), MAX_DEPTH + 1, 13);
        // Copied out, these are ten and a hundred to the power of seven.
        for width in [10, 100] {
            let (line, _, words) = refusal(&mappings(MAX_DEPTH - 1, width));
            assert!((2..=MAX_DEPTH).contains(&line), "{line}");
            assert_eq!(words, ConfigProblem::TooMuch.to_string());
        }
    }

    #[test]
    fn more_keys_or_values_than_any_configuration_has_are_refused() {
        let keys =
            |count: usize| (0..count).fold(String::new(), |text, i| text + &format!("k{i}:\n"));
        root(&keys(1000));
        let (_, _, words) = refusal(&keys(6000));
        assert_eq!(words, ConfigProblem::TooMuch.to_string());
        let (_, _, words) = refusal(&"- x\n".repeat(16_000));
        assert_eq!(words, ConfigProblem::TooMuch.to_string());
        let (_, _, words) = refusal(&format!("a: &x y\nb: [{}]\n", "*x, ".repeat(10_000)));
        assert_eq!(words, ConfigProblem::TooMuch.to_string());
    }

    #[test]
    fn an_alias_inside_its_own_anchor_is_refused() {
        let words = "this is not valid YAML: this alias is inside the value it refers to";
        assert_eq!(refusal("a: &x\n  b: *x\n"), (2, 6, words.to_owned()));
    }

    #[test]
    fn a_duplicate_key_is_named_with_its_position() {
        let words = "this is not valid YAML: duplicate key b\\u{1b}";
        assert_eq!(
            refusal("a:\n  \"b\\e\": 1\n  \"b\\e\": 2\n"),
            (3, 3, words.to_owned())
        );
        assert_eq!(entries(&root("a: {b: 1}\nc: {b: 1}\n")).len(), 2);
    }

    #[test]
    fn a_long_key_is_shortened_in_the_message() {
        let key = "k".repeat(30_000);
        let (_, _, words) = refusal(&format!("? {key}\n: 1\n? {key}\n: 2\n"));
        assert!(words.len() < 300, "{words}");
    }

    #[test]
    fn a_plain_value_stays_as_it_was_written() {
        for text in [
            "60m",
            "007",
            "0x1F",
            "1e3",
            "1e999",
            ".inf",
            "200000.0",
            "99999999999999999999999",
            "True",
            "yes",
            "2020-01-01",
        ] {
            assert_eq!(root(text).text(), Some(text));
            let inside = format!("\u{feff}# ü\nä: {{b: {text}}}\n");
            let inside = root(&inside);
            let inner = entries(&entries(&inside)[0].value);
            assert_eq!(inner[0].value.text(), Some(text));
        }
    }

    #[test]
    fn only_a_plain_null_is_empty() {
        for text in ["", "# comment\n", "~", "null", "Null", "NULL", "---"] {
            assert_eq!(root(text).shape(), "empty", "{text}");
        }
        for text in ["'~'", "\"\"", "'null'", "!!str ~", "!!str"] {
            assert_eq!(root(text).shape(), "a single value", "{text}");
        }
    }

    #[test]
    fn a_tag_is_either_what_the_value_is_anyway_or_refused() {
        for (text, shape) in [
            ("!!str 5", "a single value"),
            ("!!int 5", "a single value"),
            ("!!int \"5\"", "a single value"),
            ("!!map {}", "a mapping"),
            ("!!seq []", "a list"),
            ("!!null 5", "a value with a tag"),
            ("!!set {}", "a value with a tag"),
            ("!!binary aGk=", "a value with a tag"),
            ("!int 5", "a value with a tag"),
            ("!x 5", "a value with a tag"),
            ("!x []", "a value with a tag"),
        ] {
            assert_eq!(root(text).shape(), shape, "{text}");
        }
        let words = "this is not valid YAML: this value contradicts its tag";
        for text in ["!!int soon", "!!map 5", "!!seq {}", "!!int []"] {
            let column = text.find(' ').unwrap() + 2;
            assert_eq!(refusal(text), (1, column, words.to_owned()), "{text}");
        }
    }

    #[test]
    fn columns_count_characters() {
        let (_, column, _) = refusal("{ä: 1, \"ä\": 2}\n");
        assert_eq!(column, 8);
    }
}
