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
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::super::error::Problem;

/// How many mappings and lists may be inside one another. A configuration needs three.
pub(super) const DEEPEST: usize = 8;

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
    for event in Parser::new_from_str(text) {
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

#[derive(Default)]
struct Builder<'a> {
    root: Option<Node>,
    /// The mappings and lists that have begun and not ended, from the outside in.
    open: Vec<Collection<'a>>,
    /// What has ended, by the number the parser gave to its anchor.
    anchors: HashMap<usize, Node>,
}

/// A mapping or list of which more is to come.
struct Collection<'a> {
    position: Position,
    anchor: Anchor,
    tag: Option<Cow<'a, Tag>>,
    height: usize,
    items: Items,
}

enum Items {
    List,
    Mapping {
        entries: Vec<Entry>,
        known: HashSet<String>,
        /// The key that waits for its value.
        key: Option<Node>,
    },
}

/// The number that the parser gave to an anchor, if there is one.
#[derive(Clone, Copy)]
struct Anchor(Option<usize>);

impl<'a> Builder<'a> {
    fn take(&mut self, event: Event<'a>, position: Position) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.admit(position, 0)?;
                let node = Node {
                    position,
                    content: Rc::new(scalar(text, style, tag.as_deref())),
                    height: 0,
                };
                self.put(node, anchor.into())
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(bad_yaml(position, "this alias is inside what it stands for"));
                };
                self.admit(position, node.height)?;
                self.put(Node { position, ..node }, Anchor(None))
            }
            Event::SequenceStart(anchor, tag) => self.begin(position, anchor, tag, Items::List),
            Event::MappingStart(anchor, tag) => self.begin(position, anchor, tag, Items::mapping()),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(collection) => {
                    let anchor = collection.anchor;
                    self.put(collection.end(), anchor)
                }
                None => Ok(()),
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }
}
