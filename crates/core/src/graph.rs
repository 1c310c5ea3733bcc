//! Cycles in a directed graph: [`Graph`].
//!
//! For dependencies between tasks: which of them have to be done before themselves, and through
//! which others. A deadlock between holders is another question, which a store answers one step at a
//! time: see [`crate::cycle`].
//!
//! 1. Nothing here recurses: a chain of dependencies may be as long as a project has tasks.
//! 2. The result depends on the edges alone, not on their order.
#![expect(
    clippy::indexing_slicing,
    reason = "every index is a position in `nodes`, and each table has one entry for each node"
)]

use std::collections::{HashMap, HashSet, VecDeque};

/// A node that the walk has not reached.
const UNSEEN: usize = usize::MAX;

/// A directed graph.
#[derive(Debug, Clone)]
pub struct Graph<N> {
    /// In order, each once.
    nodes: Vec<N>,
    /// For each node, the positions of those that it leads to.
    edges: Vec<Vec<usize>>,
}

impl<N: Copy + Ord> Graph<N> {
    /// The graph with these edges, each from its first node to its second.
    ///
    /// ```
    /// use tenure_core::graph::Graph;
    ///
    /// let graph = Graph::new([("a", "b"), ("b", "c"), ("c", "b")]);
    /// assert_eq!(graph.cycles(), [["b", "c"]]);
    /// assert_eq!(graph.nodes_on_cycles(), ["b", "c"]);
    /// ```
    pub fn new(edges: impl IntoIterator<Item = (N, N)>) -> Self {
        let pairs: Vec<(N, N)> = edges.into_iter().collect();
        let mut nodes: Vec<N> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut edges = vec![Vec::new(); nodes.len()];
        for (from, to) in pairs {
            if let (Ok(from), Ok(to)) = (nodes.binary_search(&from), nodes.binary_search(&to)) {
                edges[from].push(to);
            }
        }
        for targets in &mut edges {
            targets.sort_unstable();
        }
        Self { nodes, edges }
    }

    /// Every node that leads back to itself, in order.
    pub fn nodes_on_cycles(&self) -> Vec<N> {
        let mut found: Vec<usize> = self.knots().into_iter().flatten().collect();
        found.sort_unstable();
        found.into_iter().map(|node| self.nodes[node]).collect()
    }

    /// Cycles, so many that every node of [`Graph::nodes_on_cycles`] is in at least one. Each is the
    /// shortest one through its first node, and leads from its last node back to that.
    pub fn cycles(&self) -> Vec<Vec<N>> {
        let mut cycles = Vec::new();
        let mut covered = HashSet::new();
        let mut knots = self.knots();
        knots.sort();
        for knot in knots {
            for node in knot {
                if !covered.contains(&node) {
                    let cycle = self.shortest_cycle(node);
                    covered.extend(cycle.iter().copied());
                    cycles.push(cycle.into_iter().map(|node| self.nodes[node]).collect());
                }
            }
        }
        cycles
    }

    /// The strongly connected components that have a cycle, each in order: Tarjan's algorithm.
    fn knots(&self) -> Vec<Vec<usize>> {
        let count = self.nodes.len();
        // When the walk came to each node, and the earliest node of `open` that it leads to.
        let (mut order, mut lowest) = (vec![UNSEEN; count], vec![UNSEEN; count]);
        let mut next = 0;
        // Nodes whose component is not complete.
        let (mut open, mut is_open) = (Vec::new(), vec![false; count]);
        let mut knots = Vec::new();
        for root in 0..count {
            if order[root] != UNSEEN {
                continue;
            }
            // Each node on the way here, and how many of its edges were followed.
            let mut path = vec![(root, 0)];
            while let Some((node, followed)) = path.last_mut() {
                let node = *node;
                if order[node] == UNSEEN {
                    (order[node], lowest[node]) = (next, next);
                    next += 1;
                    open.push(node);
                    is_open[node] = true;
                }
                if let Some(to) = self.edges[node].get(*followed).copied() {
                    *followed += 1;
                    if order[to] == UNSEEN {
                        path.push((to, 0));
                    } else if is_open[to] {
                        lowest[node] = lowest[node].min(order[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    lowest[*parent] = lowest[*parent].min(lowest[node]);
                }
                if lowest[node] == order[node] {
                    let first = open.iter().rposition(|other| *other == node);
                    let mut component = open.split_off(first.unwrap_or_default());
                    for member in &component {
                        is_open[*member] = false;
                    }
                    if component.len() > 1 || self.edges[node].contains(&node) {
                        component.sort_unstable();
                        knots.push(component);
                    }
                }
            }
        }
        knots
    }

    /// The shortest way from a node of a knot back to itself.
    fn shortest_cycle(&self, start: usize) -> Vec<usize> {
        let mut came_from = HashMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(node) = open.pop_front() {
            for to in &self.edges[node] {
                if *to == start {
                    let mut cycle = vec![node];
                    while let Some(before) = cycle.last().and_then(|last| came_from.get(last)) {
                        cycle.push(*before);
                    }
                    cycle.reverse();
                    return cycle;
                }
                if !came_from.contains_key(to) {
                    came_from.insert(*to, node);
                    open.push_back(*to);
                }
            }
        }
        vec![start]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cycles(edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
        Graph::new(edges.iter().copied()).cycles()
    }

    #[test]
    fn a_chain_and_two_ways_to_one_node_are_no_cycles() {
        assert!(cycles(&[]).is_empty());
        assert!(cycles(&[(0, 1), (1, 2)]).is_empty());
        assert!(cycles(&[(0, 1), (0, 2), (1, 3), (2, 3)]).is_empty());
    }

    #[test]
    fn each_cycle_is_found_once_from_its_first_node() {
        assert_eq!(cycles(&[(0, 0)]), [[0]]);
        assert_eq!(cycles(&[(0, 1), (1, 2), (2, 1)]), [[1, 2]]);
        assert_eq!(
            cycles(&[(3, 2), (2, 3), (1, 2), (1, 0), (0, 1)]),
            [[0, 1], [2, 3]]
        );
        assert_eq!(cycles(&[(0, 2), (2, 1), (1, 0), (1, 2)]), [vec![0, 2, 1]]);
        assert_eq!(cycles(&[(0, 1), (1, 0), (0, 2), (2, 0)]), [[0, 1], [2, 0]]);
    }

    #[test]
    fn a_chain_as_long_as_a_large_project_is_walked() {
        let chain = (0..200_000).map(|node| (node, node + 1));
        assert!(Graph::new(chain.clone()).cycles().is_empty());
        let ring = Graph::new(chain.chain([(200_000, 0)]));
        assert_eq!(ring.nodes_on_cycles().len(), 200_001);
        assert_eq!(ring.cycles()[0].len(), 200_001);
    }

    /// Whether a node leads to another by one edge or more, tried out.
    fn reaches(edges: &[(u8, u8)], from: u8, to: u8) -> bool {
        let mut reached: HashSet<u8> = HashSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for (_, next) in edges.iter().filter(|(from, _)| *from == node) {
                if reached.insert(*next) {
                    open.push(*next);
                }
            }
        }
        reached.contains(&to)
    }

    proptest! {
        #[test]
        fn exactly_the_nodes_that_reach_themselves_are_on_cycles(
            edges in prop::collection::vec((0..9_u8, 0..9_u8), 0..20),
        ) {
            let graph = Graph::new(edges.iter().copied());
            let expected: Vec<u8> = (0..9).filter(|node| reaches(&edges, *node, *node)).collect();
            prop_assert_eq!(graph.nodes_on_cycles(), expected.clone());
            let mut named = Vec::new();
            for cycle in graph.cycles() {
                let follows = cycle.iter().skip(1).chain(cycle.first());
                for edge in cycle.iter().copied().zip(follows.copied()) {
                    prop_assert!(edges.contains(&edge), "{edge:?} of {cycle:?}");
                }
                named.extend(cycle);
            }
            named.sort_unstable();
            named.dedup();
            prop_assert_eq!(named, expected);
        }
    }
}
