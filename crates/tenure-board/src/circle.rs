//! Tasks that wait for one another in a circle.

/// Circles, each told once: the tasks in it, with the line by which each waits for the next. Not by
/// recursion: a chain may be as long as the board.
pub(crate) fn circles(waits: &[Vec<(usize, usize)>]) -> Vec<Vec<(usize, usize)>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; waits.len()];
    let mut found = Vec::new();
    for root in 0..waits.len() {
        if marks.get(root) != Some(&Mark::New) {
            continue;
        }
        // The way here: each task, how many of its edges were looked at, and the line of the last.
        let mut way: Vec<(usize, usize, usize)> = vec![(root, 0, 0)];
        if let Some(mark) = marks.get_mut(root) {
            *mark = Mark::Open;
        }
        while let Some((task, looked, line)) = way.last_mut() {
            let task = *task;
            let next = waits
                .get(task)
                .and_then(|edges| edges.get(*looked))
                .copied();
            *looked += 1;
            let Some((to, by)) = next else {
                if let Some(mark) = marks.get_mut(task) {
                    *mark = Mark::Done;
                }
                way.pop();
                continue;
            };
            *line = by;
            match marks.get(to) {
                Some(Mark::New) => {
                    if let Some(mark) = marks.get_mut(to) {
                        *mark = Mark::Open;
                    }
                    way.push((to, 0, 0));
                }
                Some(Mark::Open) => {
                    let begins = way.iter().position(|(task, ..)| *task == to).unwrap_or(0);
                    let circle = way.get(begins..).unwrap_or_default();
                    found.push(
                        circle
                            .iter()
                            .map(|(task, _, line)| (*task, *line))
                            .collect(),
                    );
                }
                Some(Mark::Done) | None => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(edges: &[&[usize]]) -> Vec<Vec<usize>> {
        let waits: Vec<Vec<(usize, usize)>> = edges
            .iter()
            .map(|to| to.iter().map(|to| (*to, to + 10)).collect())
            .collect();
        let circles = circles(&waits);
        circles
            .iter()
            .map(|circle| circle.iter().map(|(task, _)| *task).collect())
            .collect()
    }

    #[test]
    fn each_circle_is_told_once_and_a_chain_is_none() {
        assert!(told(&[&[1], &[2], &[]]).is_empty());
        assert!(
            told(&[&[1, 2], &[3], &[3], &[]]).is_empty(),
            "two ways are no circle"
        );
        assert_eq!(told(&[&[0]]), [vec![0]]);
        assert_eq!(told(&[&[1], &[2], &[1]]), [vec![1, 2]]);
        assert_eq!(told(&[&[1], &[0, 2], &[3], &[2]]), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn a_chain_as_long_as_a_large_board_is_walked() {
        let waits: Vec<Vec<(usize, usize)>> = (0..200_000).map(|n| vec![(n + 1, 1)]).collect();
        assert!(circles(&waits).is_empty());
    }
}
