//! The small tree that the YAML of a configuration file becomes.
//!
//! 1. Nothing here calls itself for a level of nesting: the parser hands out events, and a file
//!    that nests deeper than [`DEEPEST`] is refused at the place where it does, however large.
//! 2. An alias shares what it stands for. It copies nothing and counts as deep as its anchor, so
//!    aliases of aliases neither grow the tree nor deepen it.
//! 3. No mapping has two keys of the same text, and its entries stay in the order of the file.
//!
//! What it does not keep: the items of lists, which no setting has, and the types that YAML gives
//! to plain values. `1e3` stays the text that was written, as it would in an environment variable.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::super::error::Problem;

/// How many mappings and lists may be inside one another. A configuration needs three.
const DEEPEST: usize = 8;

/// What the parser says when brackets nest too deep even for its own counter. It looks past the
/// brackets of a possible key before it hands out the first of them.
const DEEPER_THAN_THE_PARSER: &str = "recursion limit exceeded";

/// A value, or a key, and where it is written.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) content: Rc<Content>,
    /// How many mappings and lists are inside one another here, this one included.
    height: usize,
}

#[derive(Debug)]
pub(super) enum Content {
    /// Nothing, or a word for nothing such as `~`.
    Empty,
    /// A single value, as it was written.
    Text(String),
    List,
    Mapping(Vec<Entry>),
    /// Something with a tag that has no meaning here.
    Tagged,
    /// Something that is not what its tag says.
    Contradiction,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Node,
    pub(super) value: Node,
}

/// A place in the text. Lines and columns count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Why there is no tree, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) position: Position,
    pub(super) problem: Problem,
}

/// The tree of `text`, or `None` where it has no content at all.
pub(super) fn read(text: &str) -> Result<Option<Node>, Fault> {
    let mut builder = Builder::default();
    // Not from the text as a whole: there the parser counts the bytes of some comments as columns.
    for event in Parser::new_from_iter(text.chars()) {
        let (event, span) = event?;
        builder.take(event, span.start.into())?;
    }
    Ok(builder.root)
}

impl Node {
    /// The text of a single value, or `None` where there is no value or more than one.
    pub(super) fn text(&self) -> Option<&str> {
        match &*self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// In words, what stands here.
    pub(super) fn shape(&self) -> &'static str {
        match &*self.content {
            Content::Empty => "empty",
            Content::Text(_) => "a single value",
            Content::List => "a list",
            Content::Mapping(_) => "a mapping",
            Content::Tagged => "a value with a tag",
            Content::Contradiction => "a value that contradicts its tag",
        }
    }
}

/// What has been read so far.
#[derive(Default)]
struct Builder<'a> {
    root: Option<Node>,
    /// The mappings and lists that have begun and not ended, from the outside in.
    open: Vec<Collection<'a>>,
    /// What an alias can stand for.
    anchored: HashMap<AnchorId, Node>,
}

/// The parser's number for an anchor.
type AnchorId = NonZeroUsize;

/// A mapping or list of which more is to come.
struct Collection<'a> {
    position: Position,
    anchor: Option<AnchorId>,
    tag: Option<Cow<'a, Tag>>,
    height: usize,
    items: Items,
}

enum Items {
    List,
    Mapping {
        entries: Vec<Entry>,
        keys: HashSet<String>,
        /// The key that waits for its value.
        key: Option<Node>,
    },
}

impl<'a> Builder<'a> {
    fn take(&mut self, event: Event<'a>, position: Position) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.admit(position, 0)?;
                let content = Rc::new(single(text, style, tag.as_deref()));
                let node = Node {
                    position,
                    content,
                    height: 0,
                };
                self.put(node, AnchorId::new(anchor))
            }
            Event::Alias(anchor) => {
                let meant = AnchorId::new(anchor).and_then(|id| self.anchored.get(&id).cloned());
                let Some(node) = meant else {
                    return Err(bad_yaml(
                        position,
                        "this alias is inside of what it stands for",
                    ));
                };
                self.admit(position, node.height)?;
                self.put(Node { position, ..node }, None)
            }
            Event::SequenceStart(anchor, tag) => self.begin(position, anchor, tag, Items::List),
            Event::MappingStart(anchor, tag) => self.begin(position, anchor, tag, Items::mapping()),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Whether something of this height may come next.
    fn admit(&self, position: Position, height: usize) -> Result<(), Fault> {
        if self.open.is_empty() && self.root.is_some() {
            return Err(bad_yaml(position, "a second document begins here"));
        }
        if self.open.len() + height > DEEPEST {
            return Err(too_deep(position));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        position: Position,
        anchor: usize,
        tag: Option<Cow<'a, Tag>>,
        items: Items,
    ) -> Result<(), Fault> {
        self.admit(position, 1)?;
        self.open.push(Collection {
            position,
            anchor: AnchorId::new(anchor),
            tag,
            height: 1,
            items,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(collection) = self.open.pop() else {
            return Ok(());
        };
        let node = Node {
            position: collection.position,
            content: Rc::new(whole(collection.items, collection.tag.as_deref())),
            height: collection.height,
        };
        self.put(node, collection.anchor)
    }

    fn put(&mut self, node: Node, anchor: Option<AnchorId>) -> Result<(), Fault> {
        if let Some(anchor) = anchor {
            self.anchored.insert(anchor, node.clone());
        }
        let Some(collection) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        collection.height = collection.height.max(node.height + 1);
        collection.items.put(node)
    }
}

impl Items {
    fn mapping() -> Self {
        Self::Mapping {
            entries: Vec::new(),
            keys: HashSet::new(),
            key: None,
        }
    }

    fn put(&mut self, node: Node) -> Result<(), Fault> {
        let Self::Mapping { entries, keys, key } = self else {
            return Ok(());
        };
        if let Some(key) = key.take() {
            entries.push(Entry { key, value: node });
            return Ok(());
        }
        if let Some(text) = node.text()
            && !keys.insert(text.to_owned())
        {
            let words = format!("duplicated key {}", text.escape_debug());
            return Err(bad_yaml(node.position, &words));
        }
        *key = Some(node);
        Ok(())
    }
}

/// What a single value is. Of YAML's own tags, those are understood that a setting can have.
fn single(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Content {
    let is_null = matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
    match tag.map(core_name) {
        None if is_null && style == ScalarStyle::Plain => Content::Empty,
        None | Some("str") => Content::Text(text.into_owned()),
        Some("null") if is_null => Content::Empty,
        Some("int") if text.parse::<i64>().is_ok() => Content::Text(text.into_owned()),
        Some("null" | "int" | "map" | "seq") => Content::Contradiction,
        Some(_) => Content::Tagged,
    }
}

/// What a mapping or list is, now that all of it is there.
fn whole(items: Items, tag: Option<&Tag>) -> Content {
    match (tag.map(core_name), items) {
        (None | Some("seq"), Items::List) => Content::List,
        (None | Some("map"), Items::Mapping { entries, .. }) => Content::Mapping(entries),
        (Some("null" | "int" | "map" | "seq" | "str"), _) => Content::Contradiction,
        (Some(_), _) => Content::Tagged,
    }
}

/// The name of one of YAML's own tags, `int` of `!!int`, and no name for any other.
fn core_name(tag: &Tag) -> &str {
    if tag.is_yaml_core_schema() {
        &tag.suffix
    } else {
        ""
    }
}

fn bad_yaml(position: Position, words: &str) -> Fault {
    Fault {
        position,
        problem: Problem::BadYaml(words.to_owned()),
    }
}

fn too_deep(position: Position) -> Fault {
    Fault {
        position,
        problem: Problem::TooDeep(DEEPEST),
    }
}

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Self {
        let position = (*error.marker()).into();
        match error.info() {
            DEEPER_THAN_THE_PARSER => too_deep(position),
            words => bad_yaml(position, words),
        }
    }
}

impl From<Marker> for Position {
    /// The parser counts columns from zero, people and editors from one.
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> Node {
        read(text).unwrap().unwrap()
    }

    fn entries(node: &Node) -> &[Entry] {
        match &*node.content {
            Content::Mapping(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    /// The line, the column and the words.
    fn refusal(text: &str) -> (usize, usize, String) {
        let Fault { position, problem } = read(text).unwrap_err();
        (position.line, position.column, problem.to_string())
    }

    fn assert_too_deep(text: &str, line: usize, column: usize) {
        let words = Problem::TooDeep(DEEPEST).to_string();
        let start: String = text.chars().take(40).collect();
        assert_eq!(refusal(text), (line, column, words), "{start}");
    }

    #[test]
    fn a_tree_of_the_greatest_depth_is_read_and_one_level_more_is_refused_where_it_begins() {
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
            let nested = |depth| format!("{}x{}\n", open.repeat(depth), close.repeat(depth));
            assert_eq!(root(&nested(DEEPEST)).height, DEEPEST, "{open}");
            assert_too_deep(&nested(DEEPEST + 1), 1, open.len() * DEEPEST + 1);
        }
        let lines = |depth| {
            (0..depth).fold(String::new(), |text, level| {
                text + &" ".repeat(level) + "a:\n"
            })
        };
        assert_eq!(root(&lines(DEEPEST)).height, DEEPEST);
        assert_too_deep(&lines(DEEPEST + 1), DEEPEST + 1, DEEPEST + 1);
    }

    #[test]
    fn the_deepest_nesting_that_fits_into_a_file_is_refused_and_not_fatal() {
        for (open, column) in [("- ", 17), ("? ", 17), ("- ? ", 17)] {
            assert_too_deep(&open.repeat(60_000 / open.len()), 1, column);
        }
        // Brackets may begin a key, and the parser looks for its end before it says anything.
        for (open, column) in [("[", 256), ("{", 256), ("{a: ", 1021), ("[{a: ", 637)] {
            assert_too_deep(&open.repeat(60_000 / open.len()), 1, column);
        }
    }

    #[test]
    fn an_alias_stands_for_its_anchor_at_its_own_place() {
        let root = root("a: &x\n  b: c\nd: *x\n");
        let [a, d] = entries(&root) else { panic!() };
        assert!(Rc::ptr_eq(&a.value.content, &d.value.content));
        assert_eq!(d.value.position, Position { line: 3, column: 4 });
    }

    #[test]
    fn an_alias_is_as_deep_as_its_anchor() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
            format!("a: &x {open}{close}\nb: [*x]\n")
        };
        assert_eq!(root(&nested(DEEPEST)).height, DEEPEST);
        assert_too_deep(&nested(DEEPEST + 1), 2, 5);
    }

    #[test]
    fn aliases_of_aliases_grow_neither_deep_nor_large() {
        // Every line is a mapping to as many aliases of the line before.
        let line = |i: usize, width: usize| {
            let alias = |key: usize| format!("{key}: *a{}", i - 1);
            let aliases: Vec<String> = (0..width).map(alias).collect();
            format!("a{i}: &a{i} {{{}}}\n", aliases.join(", "))
        };
        let mappings = |lines: usize, width: usize| {
            (1..=lines).fold("a0: &a0 x\n".to_owned(), |text, i| text + &line(i, width))
        };
        assert_too_deep(&mappings(2000, 1), DEEPEST + 1, 13);
        // Copied out, this would be a thousand to the power of seven.
        assert_eq!(root(&mappings(DEEPEST - 1, 1000)).height, DEEPEST);
    }

    #[test]
    fn an_alias_inside_of_its_own_anchor_is_refused() {
        let words = "this is not valid YAML: this alias is inside of what it stands for";
        assert_eq!(refusal("a: &x\n  b: *x\n"), (2, 6, words.to_owned()));
    }

    #[test]
    fn a_duplicated_key_is_named_with_its_place() {
        let words = "this is not valid YAML: duplicated key b\\u{1b}";
        assert_eq!(
            refusal("a:\n  \"b\\e\": 1\n  \"b\\e\": 2\n"),
            (3, 3, words.to_owned())
        );
        assert_eq!(entries(&root("a: {b: 1}\nc: {b: 1}\n")).len(), 2);
    }

    #[test]
    fn a_plain_value_stays_as_it_was_written() {
        for text in [
            "60m",
            "007",
            "0x1F",
            "1e3",
            "200000.0",
            "True",
            "2020-01-01",
        ] {
            assert_eq!(root(text).text(), Some(text));
        }
    }

    #[test]
    fn only_a_plain_word_for_nothing_is_empty() {
        for text in ["~", "null", "Null", "NULL", "---", "!!null ~", "!!null ''"] {
            assert_eq!(root(text).shape(), "empty", "{text}");
        }
        for text in ["nULL", "'~'", "\"\"", "!!str ~", "!!str"] {
            assert_eq!(root(text).shape(), "a single value", "{text}");
        }
    }

    #[test]
    fn a_tag_is_either_what_the_value_is_anyway_or_refused() {
        for (text, shape) in [
            ("!!str 5", "a single value"),
            ("!!int 5", "a single value"),
            ("!!map {}", "a mapping"),
            ("!!seq []", "a list"),
            ("!!int soon", "a value that contradicts its tag"),
            ("!!null 5", "a value that contradicts its tag"),
            ("!!map 5", "a value that contradicts its tag"),
            ("!!seq {}", "a value that contradicts its tag"),
            ("!!int []", "a value that contradicts its tag"),
            ("!!set {}", "a value with a tag"),
            ("!!float 5", "a value with a tag"),
            ("!x 5", "a value with a tag"),
            ("!x []", "a value with a tag"),
        ] {
            assert_eq!(root(text).shape(), shape, "{text}");
        }
    }

    #[test]
    fn columns_count_characters() {
        let (_, column, _) = refusal("{ä: 1, \"ä\": 2}\n");
        assert_eq!(column, 8);
    }
}
