//! The address of a cluster: [`Address`].

use std::fmt;
use std::path::{Path, PathBuf};

use crate::layout;

/// Where a cluster is, how to log in, and under which prefix the store is:
/// `etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/PREFIX][?ca=FILE&cert=FILE&key=FILE&password-file=FILE]`.
///
/// ```
/// use tenure_etcd::Address;
///
/// let address = Address::parse("etcd://ci:secret@10.0.0.1,10.0.0.2:2381/team?ca=/etc/ca.pem").unwrap();
/// assert_eq!(address.endpoints, ["10.0.0.1:2379", "10.0.0.2:2381"]);
/// assert_eq!(address.prefix, "team");
/// assert_eq!(address.to_string(), "etcd://10.0.0.1:2379,10.0.0.2:2381/team");
/// assert!(Address::parse("etcd:///team").is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The members that are asked, as `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The prefix of every key of the store.
    pub prefix: String,
    /// The user and the password, if the cluster asks for them.
    pub login: Option<(String, String)>,
    /// The file with the password, for an address that names only the user. It is read when a connection is made.
    pub password_file: Option<PathBuf>,
    /// The files for an encrypted connection; `None` without encryption.
    pub tls: Option<Tls>,
}

/// The files for an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// The certificate of the authority that signed the members' certificates; the system's if `None`.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why a text is not the address of a cluster. The message repeats nothing before the text's last `@`: it may be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// It names no host.
    #[error("the address names no host: write etcd://HOST:2379/PREFIX")]
    NoHost,
    /// An `@` after the host. It may belong to a password with `/` or `?` in it.
    #[error(
        "the address has an @ after its first / or ?: in a user or password, write / as %2F and ? as %3F; in a prefix or \
         a file's name, write @ as %40"
    )]
    LateAt,
    /// A port is not a number.
    #[error("{0:?} is not HOST or HOST:PORT")]
    BadHost(String),
    /// An unknown parameter.
    #[error(
        "?{0}= is not a parameter of an etcd address: there are ca, cert, key, tls and password-file"
    )]
    UnknownParameter(String),
    /// A client certificate without its key, or the reverse.
    #[error("?cert= and ?key= belong together: give both")]
    HalfCertificate,
    /// A password file without a user.
    #[error("?password-file= needs a user: write etcd://USER@HOST:2379/PREFIX?password-file=FILE")]
    NoUser,
    /// Percent-encoding that makes no sense.
    #[error("the address has a % that is not followed by two hexadecimal digits")]
    BadEncoding,
}

/// The port of an etcd member, unless the address says otherwise.
const PORT: u16 = 2379;

/// The prefix, unless the address has one.
const PREFIX: &str = "tenure";

impl Address {
    /// Parses an address.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let rest = text.strip_prefix("etcd://").ok_or(BadAddress::NoHost)?;
        // Read as it stands, the user would be the host, and a message would show it.
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        if rest.rfind('@').is_some_and(|at| at > end) {
            return Err(BadAddress::LateAt);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let login = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            Ok((decoded(user)?, decoded(password)?))
        });
        let endpoints: Vec<String> = hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(endpoint)
            .collect::<Result<_, _>>()?;
        if endpoints.is_empty() {
            return Err(BadAddress::NoHost);
        }
        let prefix = decoded(prefix.trim_matches('/'))?;
        let (tls, password_file) = parameters(query)?;
        if password_file.is_some() && login.is_none() {
            return Err(BadAddress::NoUser);
        }
        Ok(Self {
            endpoints,
            prefix: if prefix.is_empty() {
                PREFIX.to_owned()
            } else {
                prefix
            },
            login: login.transpose()?,
            password_file,
            tls,
        })
    }

    /// Looks for its files in this folder, if their paths are relative.
    pub fn files_in(&mut self, folder: &Path) {
        let tls = self.tls.as_mut();
        let tls = tls.into_iter().flat_map(|tls| {
            let client = tls.client.iter_mut();
            let client = client.flat_map(|(cert, key)| [cert, key]);
            client.chain(&mut tls.ca)
        });
        for file in tls.chain(&mut self.password_file) {
            *file = folder.join(&*file);
        }
    }
}

/// `HOST` or `HOST:PORT`, with a port.
fn endpoint(host: &str) -> Result<String, BadAddress> {
    let bad = || BadAddress::BadHost(host.to_owned());
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match after_brackets.rsplit_once(':') {
        None => Ok(format!("{host}:{PORT}")),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        Some(_) => Err(bad()),
    }
}

/// The files for an encrypted connection, and the file with the password.
fn parameters(query: &str) -> Result<(Option<Tls>, Option<PathBuf>), BadAddress> {
    let (mut tls, mut wanted, mut password_file) = (Tls::default(), false, None);
    let (mut cert, mut key) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = PathBuf::from(decoded(value)?);
        match name {
            "ca" => tls.ca = Some(path),
            "cert" => cert = Some(path),
            "key" => key = Some(path),
            "tls" => {}
            "password-file" => {
                password_file = Some(path);
                continue;
            }
            other => return Err(BadAddress::UnknownParameter(other.to_owned())),
        }
        wanted = true;
    }
    tls.client = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(BadAddress::HalfCertificate),
    };
    Ok((wanted.then_some(tls), password_file))
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String, BadAddress> {
    layout::decoded(text).ok_or(BadAddress::BadEncoding)
}

/// Without user, password and files: it is shown in messages.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.endpoints.join(","), self.prefix)
    }
}

/// Without the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("etcd://u:s%40cret@h/p").unwrap();
        assert_eq!(address.login, Some(("u".into(), "s@cret".into())));
        for shown in [address.to_string(), format!("{address:?}")] {
            assert_eq!(shown.matches("cret").count(), 0, "{shown}");
        }
    }

    #[test]
    fn bad_addresses_are_refused_without_repeating_a_password() {
        for (text, message) in [
            ("etcd://", "the address names no host"),
            ("etcd://u:secret@/p", "the address names no host"),
            ("etcd://u:secret@h:x/p", "\"h:x\" is not HOST or HOST:PORT"),
            (
                "etcd://u:secret@h/p?color=red",
                "?color= is not a parameter",
            ),
            ("etcd://u:secret@h/p?cert=a", "belong together"),
            ("etcd://h/p?password-file=a", "needs a user"),
            ("etcd://u:sec%zzret@h/p", "followed by two hexadecimal"),
            ("etcd://u:secret/x@h:1/p", "write / as %2F"),
            ("etcd://u:secret?x@h:1/p", "write / as %2F"),
            ("etcd://u:1/secret@h", "write / as %2F"),
            ("etcd://u:x@secret/y@h", "write / as %2F"),
            ("etcd://u:1?secret@h", "write / as %2F"),
            ("etcd:u:secret@h", "write etcd://HOST"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_address_of_ipv6_has_its_port() {
        let address = Address::parse("etcd://[::1],[::2]:99/a/b/").unwrap();
        assert_eq!(address.endpoints, ["[::1]:2379", "[::2]:99"]);
        assert_eq!(address.prefix, "a/b");
        assert_eq!(address.tls, None);
        assert!(Address::parse("etcd://h/?tls").unwrap().tls.is_some());
    }
}
