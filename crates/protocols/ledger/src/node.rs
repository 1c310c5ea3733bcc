//! The node of a claim: [`NodeId`].

use std::fmt;

use serde::{Deserialize, Serialize};
use tenure_core::{Key, KeyKind};

/// Why a text is not a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a node: write positive numbers separated by dots, for example 1.2.3")]
pub struct BadNode(pub String);

/// A node of a tree: `1`, `1.2`, `1.2.3`. Nodes sort by number: `1.10` comes after `1.9`.
///
/// ```
/// use tenure_ledger::NodeId;
///
/// let mut nodes = ["1.10", "1", "1.9.1", "2"].map(|text| NodeId::parse(text).unwrap());
/// nodes.sort();
/// assert_eq!(nodes.map(|node| node.to_string()), ["1", "1.9.1", "1.10", "2"]);
/// assert!(NodeId::parse("1..2").is_err());
/// assert!(NodeId::parse("1.02").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId {
    parts: Vec<u64>,
    key: Key,
}

impl NodeId {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, BadNode> {
        let bad = || BadNode(text.to_owned());
        let part = |part: &str| {
            let plain = !part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = plain.then(|| part.parse::<u64>().ok()).flatten();
            number.ok_or_else(bad)
        };
        let parts = text.split('.').map(part).collect::<Result<_, _>>()?;
        let key = Key::parse(format!("node:{text}")).map_err(|_| bad())?;
        Ok(Self { parts, key })
    }

    /// The node of a key `node:1.2.3`.
    pub fn of(key: &Key) -> Result<Self, BadNode> {
        match key.kind() {
            KeyKind::Node(id) => Self::parse(id),
            _ => Err(BadNode(key.to_string())),
        }
    }

    /// The key of a claim on this node.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key.id())
    }
}

impl TryFrom<String> for NodeId {
    type Error = BadNode;
    fn try_from(text: String) -> Result<Self, BadNode> {
        Self::parse(&text)
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> Self {
        node.to_string()
    }
}
