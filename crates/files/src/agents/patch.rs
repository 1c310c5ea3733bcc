//! The files that a patch names, in the format of Codex's `apply_patch`: [`files`].

/// What begins a patch.
pub(crate) const BEGIN: &str = "*** Begin Patch";

/// The lines that name a file.
const HEADERS: [&str; 4] = [
    "*** Add File: ",
    "*** Update File: ",
    "*** Delete File: ",
    "*** Move to: ",
];

/// The files that a patch adds, changes, deletes or renames, each once, in order.
///
/// A line of content begins with `+`, `-` or a blank, so it is never taken for a header.
pub fn files(patch: &str) -> Vec<&str> {
    let mut files = Vec::new();
    for line in patch.lines() {
        let named = HEADERS.iter().find_map(|header| line.strip_prefix(header));
        let named = named.map(str::trim_end).filter(|file| !file.is_empty());
        if let Some(file) = named
            && !files.contains(&file)
        {
            files.push(file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_patch_is_named_once() {
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+*** Add File: not.txt\n*** Update File: src/b.rs\r\n\
                     *** Move to: src/c.rs\n@@\n-x\n+y\n*** Delete File: d e.txt\n*** Update File: a.txt\n*** End Patch\n";
        assert_eq!(files(patch), ["a.txt", "src/b.rs", "src/c.rs", "d e.txt"]);
        assert!(files("*** Add File: \nnothing").is_empty());
    }
}
