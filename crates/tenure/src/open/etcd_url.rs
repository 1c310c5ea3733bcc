//! The address of an etcd cluster, which may contain a password: [`EtcdUrl`].

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::BadUrl;

/// The address of an etcd cluster: `etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/PREFIX][?ca=&cert=&key=&password-file=]`.
///
/// It is shown without user, password and parameters.
///
/// ```
/// use tenure::StoreUrl;
/// let url = StoreUrl::parse("etcd://ci:secret@10.0.0.1:2379/team?ca=/etc/ca.pem").unwrap();
/// assert_eq!(url.to_string(), "etcd://10.0.0.1:2379/team");
/// assert!(!format!("{url:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    text: String,
    /// Where its files are, if their paths are relative; the current folder if `None`.
    folder: Option<PathBuf>,
}

impl EtcdUrl {
    pub(super) fn parse(text: &OsStr) -> Result<Self, BadUrl> {
        let text = text.to_str().ok_or_else(|| {
            let message = "the address of an etcd cluster must be UTF-8: write its bytes as %XX";
            BadUrl::Etcd(message.to_owned())
        })?;
        #[cfg(feature = "etcd")]
        tenure_etcd::Address::parse(text).map_err(|error| BadUrl::Etcd(error.to_string()))?;
        Ok(Self {
            text: text.to_owned(),
            folder: None,
        })
    }

    /// The address as it was given, with its password.
    #[cfg(feature = "etcd")]
    pub(super) fn secret(&self) -> &str {
        &self.text
    }

    /// The same address, with the relative paths of its files seen from this folder.
    pub(crate) fn with_files_in(self, folder: &Path) -> Self {
        Self {
            folder: Some(folder.to_owned()),
            ..self
        }
    }

    /// Where its files are.
    #[cfg(feature = "etcd")]
    pub(super) fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new(""))
    }

    /// Whether it contains a password.
    pub fn has_password(&self) -> bool {
        login(&self.text).is_some_and(|login| login.contains(':'))
    }
}

/// What is between `//` and the last `@`.
fn login(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("//")?;
    rest.rsplit_once('@').map(|(login, _)| login)
}

/// The schemes whose addresses are paths. These may have an `@` in them, and have no login.
const PATHS: [&str; 5] = ["sqlite:", "steroids:", "exclusive:", "mkdir:", "ledger:"];

/// An address without user and password: nothing between its scheme and its last `@`, wherever that is. What can't be
/// parsed may have a password anywhere.
pub(crate) fn without_login(text: &str) -> String {
    let is_path = PATHS.iter().any(|scheme| text.starts_with(scheme));
    let Some((before, after)) = text.rsplit_once('@').filter(|_| !is_path) else {
        return text.to_owned();
    };
    let is_scheme = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
    match before.split_once(':') {
        Some((scheme, rest)) if rest.starts_with("//") && is_scheme(scheme) => {
            format!("{scheme}://{after}")
        }
        Some(("etcd", _)) => format!("etcd:{after}"),
        _ => after.to_owned(),
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = without_login(&self.text);
        f.write_str(shown.split('?').next().unwrap_or_default())
    }
}

impl fmt::Debug for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "etcd://u:se@cret@h/p",
            "etcd://u:secret@h,g:1/p/q?key=/secret",
            "etc://u:secret@h",
            "etcd://u:se/cret@h/p",
            "etcd://u:se?cret@h/p",
            "etcd://u:1/cret@h",
            "etcd://u:/cr?et@cret@h",
            "etcd://u:cr@et/cret@h",
            "etcd:u:secret@h:1/x",
            "etcd:/u:secret@h",
            "u:secret@h:1/x",
            "u:secret//cret@h:1/x",
        ] {
            let shown = without_login(text);
            assert!(
                !shown.split('?').next().unwrap().contains("cret"),
                "{shown}"
            );
        }
        assert_eq!(without_login("sqlite:a@b"), "sqlite:a@b");
        assert_eq!(without_login("etcd:u:secret@h:1/x"), "etcd:h:1/x");
        assert_eq!(without_login("etc://u:secret@h"), "etc://h");
    }
}
