//! The lines that an edit changes: [`unified`].

use similar::TextDiff;

/// The difference between two texts in the form of `diff -u`, without its heading.
pub fn unified(old: &str, new: &str) -> String {
    // Lines as git counts them: without a line feed, a carriage return ends none.
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    TextDiff::configure()
        .newline_terminated(true)
        .diff_slices(&lines(old), &lines(new))
        .unified_diff()
        .to_string()
        .replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9";
        let new = "1\n2\n3\n4\n5\nfive and a half\n6\n7\n8\nnine\n";
        let shown = "@@ -3,7 +3,8 @@\n 3\n 4\n 5\n+five and a half\n 6\n 7\n 8\n-9\n\\ No newline at end of file\n+nine\n";
        assert_eq!(unified(old, new), shown);
        let windows = |text: &str| text.replace('\n', "\r\n");
        assert_eq!(unified(&windows(old), &windows(new)), shown);
        assert_eq!(unified(old, old), "");
        assert_eq!(unified("", "a\rb\n"), "@@ -0,0 +1 @@\n+a\rb\n");
    }
}
