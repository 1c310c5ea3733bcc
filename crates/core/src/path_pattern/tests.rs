use super::*;
use proptest::prelude::*;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn overlap(one: &str, two: &str) -> Option<String> {
    let found = pattern(one).overlap(&pattern(two));
    let other_way = pattern(two).overlap(&pattern(one));
    assert_eq!(found.is_some(), other_way.is_some(), "{one} and {two}");
    found
}

#[test]
fn patterns_with_a_path_in_common_overlap() {
    for (one, two) in [
        ("src", "src"),
        ("src/", "src/a.rs"),
        ("./src//a.rs", "src/b/../a.rs"),
        ("src/**", "src/a/b/c.rs"),
        ("**", "a"),
        ("**/*.rs", "src/lib.rs"),
        ("**/lib.rs", "lib.rs"),
        ("src/*.rs", "src/[k-m]ib.?s"),
        ("a*b", "*ab*"),
        ("{src,docs}/x", "docs/?"),
        ("{src/**,docs/**}", "docs/a/b"),
        ("{**,a}/x", "q/r/x"),
        ("a{,b}c", "ac"),
        ("a\\*b", "a[*]b"),
        ("[!a]", "[^b]"),
        ("src/api/**", "**/test/*.rs"),
        ("a/**/b", "a/b"),
        ("src/*", "src/api/mod.rs"),
        ("src/**/*.rs", "src"),
        ("*.xcodeproj/", "a.xcodeproj/project"),
        ("*.rs/", "a.rs"),
        ("[[:alpha:]]1", "[x-z]?"),
        ("[![:digit:]]", "a"),
        ("docs/{*.md,img}", "docs/img/a.png"),
        ("...", "?.?"),
        ("\u{e9}t\u{e9}", "?t?"),
    ] {
        let found = overlap(one, two);
        let found = found.unwrap_or_else(|| panic!("{one} and {two} overlap"));
        assert!(
            pattern(one).covers(&found) && pattern(two).covers(&found),
            "{found}"
        );
    }
}

#[test]
fn patterns_without_a_path_in_common_do_not() {
    for (one, two) in [
        ("src", "srcs"),
        ("src/*.rs", "src/*.c"),
        ("src/**", "docs/**"),
        ("a?", "a"),
        ("[a-c]", "[d-f]"),
        ("[!a]", "a"),
        // Only the names `.` and `..` would match both.
        ("?", "[.]"),
        ("[.][.]", "??"),
        ("*/x", "[.]/x"),
        ("a\\*b", "axb"),
        ("{a,b}/{c,d}", "{a,b}/{e,f}"),
        ("**/*.rs", "**/*.md"),
        ("**/*.[ch]", "**/*.{ts,tsx}"),
        ("src/**/*_test.go", "src/**/*.css"),
        ("*.rs", "a.rs/b"),
        ("*.rs/", "*.rs"),
        ("[[:digit:]]", "[a-z]"),
    ] {
        assert_eq!(overlap(one, two), None, "{one} and {two}");
    }
}

#[test]
fn a_pattern_is_refused_with_the_reason() {
    for (text, said) in [
        ("", "is empty"),
        (".", "is empty"),
        ("a/..", "is empty"),
        ("!a", "begins with !"),
        ("/etc/passwd", "begins with /"),
        ("{/etc,a}", "begins with /"),
        ("../a", "leads out"),
        ("a/../../b", "leads out"),
        ("*/../a", "after a wildcard"),
        ("a[b", "the [ at byte 1"),
        ("a{b,c", "the { at byte 1"),
        ("a\\", "the \\ at byte 1"),
        ("[z-a]", "a range ends"),
        ("[/]", "/ is in no name"),
        ("[[:word:]]", "it names no class"),
        ("a\nb", "control character at byte 1"),
    ] {
        let error = PathPattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text:?}: {error}");
    }
    assert_eq!(
        PathPattern::parse(&"a".repeat(1 << 20)),
        Err(BadPattern::TooLong(1 << 20))
    );
    let braces = "{a,b}".repeat(60);
    assert_eq!(PathPattern::parse(&braces), Err(BadPattern::TooComplex));
}

#[test]
fn a_file_has_nothing_below_it_that_a_wildcard_matches() {
    let file = |path: &str| PathPattern::file(path).unwrap();
    for (path, other) in [("Cargo.toml", "**/*.rs"), ("a", "?/b"), ("a/b", "*/?/**")] {
        assert_eq!(file(path).overlap(&pattern(other)), None, "{path}, {other}");
        assert_eq!(pattern(other).overlap(&file(path)), None, "{path}, {other}");
        assert!(pattern(path).overlap(&pattern(other)).is_some(), "{path}");
    }
    for (path, other) in [("src/a.rs", "**/*.rs"), ("src/a.rs", "s*"), ("a", "**")] {
        assert_eq!(file(path).overlap(&pattern(other)).as_deref(), Some(path));
    }
    // A path below it can only be made if the file goes.
    assert!(file("a").overlap(&pattern("a/b")).is_some() && file("a").covers("a/b"));
    assert!(file("a/b").overlap(&file("a")).is_some());
    // As long as the kernel allows, and whatever its characters.
    let long = format!("{}/[id].tsx", "d".repeat(4000));
    assert_eq!(file(&long).overlap(&pattern("*/*.tsx")), Some(long));
    let longer = PathPattern::file(&"d".repeat(4097));
    assert_eq!(longer, Err(BadPattern::PathTooLong(4097)));
    assert_eq!(PathPattern::file("a\tb"), Err(BadPattern::Control(1)));
    assert!(PathPattern::file("../a").is_err() && PathPattern::file("").is_err());
}

#[test]
fn every_spelling_of_a_path_is_one_pattern() {
    for text in [
        "src/a.rs",
        "./src/a.rs",
        "src//a.rs",
        "src/b/../a.rs",
        "src/./a.rs/",
    ] {
        assert_eq!(pattern(text).as_str(), "src/a.rs");
        assert_eq!(pattern(text), pattern("src/a.rs"));
    }
    assert_eq!(pattern("**/**/***").as_str(), "**/*");
    assert_eq!(pattern("a{b,c}/d").as_str(), "a{b,c}/d");
    assert_eq!(pattern("a/{../b,c}").as_str(), "{b,a/c}");
    assert_eq!(pattern("./{b,\\.}/x").as_str(), "{b/x,x}");
    let odd = "a*b[1]{x}!,\\";
    assert_eq!(
        PathPattern::exactly(odd)
            .unwrap()
            .overlap(&pattern("a*"))
            .unwrap(),
        odd
    );
}

#[test]
fn patterns_that_make_other_matchers_slow_take_a_bounded_number_of_steps() {
    let (one, two) = (pattern(&"*a".repeat(200)), pattern(&"*b".repeat(200)));
    assert_eq!(one.overlap(&two), None, "they end with different letters");
    let two = pattern(&"b*".repeat(200));
    assert!(one.steps().len() <= MAX_STEPS && two.steps().len() <= MAX_STEPS);
    let both = one.overlap(&two).unwrap();
    assert!(both.len() >= 400 && one.covers(&both) && two.covers(&both));
    let deep = pattern(&"**/a/".repeat(80));
    assert!(
        deep.overlap(&pattern(&"b/".repeat(100))).is_some(),
        "below it"
    );
    assert!(!deep.covers(&"a".repeat(400)));
}

/// A part of a name, as the test makes it up.
#[derive(Debug, Clone)]
enum Part {
    Char(char),
    Escaped(char),
    Star,
    Question,
    /// How it is written, and what is in it.
    Set(&'static str, fn(char) -> bool),
    Braces(Vec<Vec<Part>>),
}

#[derive(Debug, Clone)]
enum Piece {
    Folders,
    Name(Vec<Part>),
}

/// A pattern, as the test makes it up, and whether it ends with `/`.
type Made = (Vec<Piece>, bool);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let plain = prop_oneof![
        4 => prop::sample::select(vec!['a', 'b']).prop_map(Part::Char),
        2 => Just(Part::Char('.')),
        3 => Just(Part::Star),
        2 => Just(Part::Question),
        1 => prop::sample::select(vec!['a', '*', '.']).prop_map(Part::Escaped),
        1 => prop::sample::select(vec![
            Part::Set("[a]", |c| c == 'a'),
            Part::Set("[a-b]", |c| matches!(c, 'a' | 'b')),
            Part::Set("[[:alpha:]]", |c| c.is_ascii_alphabetic()),
            Part::Set("[[:punct:]a]", |c| c.is_ascii_punctuation() || c == 'a'),
            Part::Set(r"[!b\*]", |c| !matches!(c, 'b' | '*')),
            Part::Set("[^[:lower:]]", |c| !c.is_ascii_lowercase()),
        ]),
    ];
    let some = prop::collection::vec(plain.clone(), 0..3);
    let braces = prop::collection::vec(some, 1..3).prop_map(Part::Braces);
    prop::collection::vec(prop_oneof![12 => plain, 1 => braces], 1..4)
}

fn made() -> impl Strategy<Value = Made> {
    let piece = prop_oneof![
        1 => Just(Piece::Folders),
        3 => parts().prop_map(Piece::Name),
    ];
    let pieces = prop::collection::vec(piece, 1..4);
    let made = (pieces, prop::bool::weighted(0.2));
    made.prop_filter("an empty name, . or ..", |made| !has_no_name(made))
}

fn spelled(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Char(c) => c.to_string(),
        Part::Escaped(c) => format!("\\{c}"),
        Part::Star => "*".to_owned(),
        Part::Question => "?".to_owned(),
        Part::Set(text, _) => (*text).to_owned(),
        Part::Braces(all) => {
            let all: Vec<String> = all.iter().map(|one| spelled(one)).collect();
            format!("{{{}}}", all.join(","))
        }
    };
    parts.iter().map(part).collect()
}

fn text((pieces, slash): &Made) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Folders => "**".to_owned(),
        Piece::Name(parts) => spelled(parts),
    };
    let names: Vec<String> = pieces.iter().map(piece).collect();
    format!("{}{}", names.join("/"), if *slash { "/" } else { "" })
}

/// What the braces of a name stand for.
fn without_braces(parts: &[Part]) -> Vec<Vec<Part>> {
    let mut all = vec![Vec::new()];
    for part in parts {
        let ways = match part {
            Part::Braces(ways) => ways.clone(),
            part => vec![vec![part.clone()]],
        };
        all = all
            .iter()
            .flat_map(|begun| ways.iter().map(|way| [begun.as_slice(), way].concat()))
            .collect();
    }
    all
}

/// Whether a name has wildcards and an extension.
fn has_extension(parts: &[Part]) -> bool {
    let wild = |part: &Part| !matches!(part, Part::Char(_) | Part::Escaped(_));
    let text: String = parts
        .iter()
        .map(|part| match part {
            Part::Char(c) | Part::Escaped(c) => *c,
            Part::Star => '/',
            _ => '?',
        })
        .collect();
    let (before, after) = text.rsplit_once('/').unwrap_or(("", &text));
    let begins = before.is_empty() && !text.starts_with('/');
    let dots = after.char_indices().filter(|(_, c)| *c == '.');
    let inner = |(at, _): (usize, char)| (at > 0 || !begins) && at + 1 < after.len();
    parts.iter().any(wild) && dots.into_iter().any(inner)
}

/// Whether a name matches, by trying everything.
fn name_matches(parts: &[Part], name: &str) -> bool {
    let Some((part, parts)) = parts.split_first() else {
        return name.is_empty();
    };
    let mut rest = name.chars();
    let first = rest.next();
    let one = |is: bool| is && name_matches(parts, rest.as_str());
    match part {
        Part::Star => (0..=name.len()).any(|end| name_matches(parts, &name[end..])),
        Part::Char(c) | Part::Escaped(c) => one(first == Some(*c)),
        Part::Question => one(first.is_some()),
        Part::Set(_, contains) => one(first.is_some_and(contains)),
        Part::Braces(_) => panic!("they were replaced"),
    }
}

/// Whether these names match a path or what is above it, by trying everything.
fn names_match(pieces: &[Piece], slash: bool, names: &[&str]) -> bool {
    match pieces {
        [] => true,
        [Piece::Folders] => !names.is_empty(),
        [Piece::Folders, rest @ ..] => {
            (0..=names.len()).any(|skip| names_match(rest, slash, &names[skip..]))
        }
        [Piece::Name(parts), rest @ ..] => {
            let Some((name, below)) = names.split_first() else {
                return false;
            };
            without_braces(parts).iter().any(|parts| {
                let is_last = rest.is_empty();
                let fits = match (is_last && has_extension(parts), slash) {
                    (true, false) => below.is_empty(),
                    (true, true) => !below.is_empty(),
                    (false, _) => true,
                };
                // Two stars of braces can make up a name of their own, which means any folders.
                let is_folders = matches!(parts.as_slice(), [Part::Star, Part::Star]);
                if is_folders {
                    let folders = [&[Piece::Folders], rest].concat();
                    return names_match(&folders, slash, names);
                }
                fits && name_matches(parts, name) && names_match(rest, slash, below)
            })
        }
    }
}

fn spells(parts: &[Part], text: &str) -> bool {
    let plain = parts.iter().map(|part| match part {
        Part::Char(c) | Part::Escaped(c) => Some(*c),
        _ => None,
    });
    plain.collect::<Option<String>>().as_deref() == Some(text)
}

/// Every path in normal form of these characters, up to a length.
fn paths(length: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut found = Vec::new();
    for _ in 0..length {
        all = all
            .iter()
            .flat_map(|path| ["a", "b", ".", "*", "/"].map(|c| format!("{path}{c}")))
            .collect();
        found.extend(
            all.iter()
                .filter(|path| path.split('/').all(|name| !matches!(name, "" | "." | "..")))
                .cloned(),
        );
    }
    found
}

/// Whether a pattern has a name that is empty, `.` or `..` in one of its alternatives. What such a pattern means is
/// tested on its own.
fn has_no_name((pieces, _): &Made) -> bool {
    pieces.iter().any(|piece| match piece {
        Piece::Folders => false,
        Piece::Name(parts) => without_braces(parts)
            .iter()
            .any(|parts| parts.is_empty() || spells(parts, ".") || spells(parts, "..")),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlap_and_covers_agree_with_trying_every_path(one in made(), two in made(), file in 0..1000_usize) {
        let (first, second) = (pattern(&text(&one)), pattern(&text(&two)));
        let tried = |(pieces, slash): &Made, path: &str| {
            names_match(pieces, *slash, &path.split('/').collect::<Vec<_>>())
        };
        let paths = paths(5);
        let mut common = None;
        for path in &paths {
            let (in_one, in_two) = (tried(&one, path), tried(&two, path));
            prop_assert_eq!(first.covers(path), in_one, "{} covers {}", first, path);
            prop_assert_eq!(second.covers(path), in_two, "{} covers {}", second, path);
            if in_one && in_two {
                common = Some(path);
            }
        }
        match first.overlap(&second) {
            None => prop_assert_eq!(common, None, "{} and {}", first, second),
            Some(path) => {
                prop_assert!(tried(&one, &path) && tried(&two, &path), "{first} and {second}: {path}");
            }
        }
        // It means the same after it was stored.
        let again = pattern(first.as_str());
        prop_assert_eq!(again.steps(), first.steps());
        // A file overlaps with what covers it.
        let path = &paths[file % paths.len()];
        let file = PathPattern::file(path).unwrap();
        if !first.is_path() {
            prop_assert_eq!(file.overlap(&first).is_some(), tried(&one, path), "{} and {}", path, first);
        }
    }
}
