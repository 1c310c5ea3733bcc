//! Which texts and ids can be used.

use tenure_core::key::Key;

use super::{ANY, TaskError};

/// The longest title, in bytes.
pub const MAX_TITLE: usize = 500;

/// The longest description, in bytes.
pub const MAX_DESCRIPTION: usize = 64 * 1024;

/// Whether a title can be used.
pub fn check_title(title: &str) -> Result<(), TaskError> {
    let problem = if title.trim().is_empty() {
        "is empty: say what is to be done".to_owned()
    } else if title.len() > MAX_TITLE {
        format!(
            "is {} bytes long: at most {MAX_TITLE} are allowed, the rest belongs into the description",
            title.len()
        )
    } else if title.contains(char::is_control) {
        "has a control character: use one line of visible text".to_owned()
    } else if title.trim() != title {
        "begins or ends with white space: remove it".to_owned()
    } else {
        return Ok(());
    };
    Err(TaskError::bad_text("title", problem))
}

/// Whether a description can be used.
pub fn check_description(description: &str) -> Result<(), TaskError> {
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    let problem = if description.len() > MAX_DESCRIPTION {
        format!(
            "is {} bytes long: at most {MAX_DESCRIPTION} are allowed",
            description.len()
        )
    } else if description.contains(strange) {
        "has a control character: use visible text".to_owned()
    } else {
        return Ok(());
    };
    Err(TaskError::bad_text("description", problem))
}

/// A text as a command left it, made fit to be kept: not too long, nothing invisible.
pub fn tidy(text: &str) -> String {
    let visible = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    let text: String = visible.take(MAX_DESCRIPTION / 16).collect();
    text.trim().to_owned()
}

/// A title as another program wrote it, made fit to be shared.
pub fn fit_title(title: &str) -> String {
    let visible: String = title.chars().filter(|c| !c.is_control()).collect();
    let fit = cut(visible.trim(), MAX_TITLE);
    if fit.is_empty() { "?".to_owned() } else { fit }
}

/// A description as another program wrote it, made fit to be shared.
pub fn fit_description(description: &str) -> String {
    let visible: String = description
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'))
        .collect();
    cut(&visible, MAX_DESCRIPTION)
}

fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(at, _)| at);
    let end = ends.take_while(|at| *at <= longest).last().unwrap_or(0);
    text.get(..end).unwrap_or_default().trim_end().to_owned()
}

/// Whether an id of a task or section can be used.
pub fn check_id(what: &'static str, id: &str) -> Result<(), TaskError> {
    let key = Key::parse(format!("section:{id}"));
    let problem = match key {
        Err(_) if id.trim().is_empty() => "is empty: leave it out, or give one".to_owned(),
        Err(error) => format!("can't be used: {error}"),
        Ok(_) if id == ANY => "stands for any task: choose another".to_owned(),
        Ok(_) if id.trim() != id => "begins or ends with white space: remove it".to_owned(),
        Ok(_) => return Ok(()),
    };
    Err(TaskError::BadText { what, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_is_wrong_with_them() {
        for (title, words) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("a\nb", "control character"),
            ("a ", "white space"),
        ] {
            let error = check_title(title).unwrap_err().to_string();
            assert!(error.contains(words), "{title:?}: {error}");
        }
        assert!(check_title(&"x".repeat(MAX_TITLE + 1)).is_err());
        assert!(check_description("two\nlines\tand a tab").is_ok());
        assert!(check_description("\u{1b}[31m").is_err());
        assert!(check_id("id", "*").is_err());
        assert!(check_id("id", " a").is_err());
        assert!(check_id("id", "a1b2").is_ok());
    }
}
