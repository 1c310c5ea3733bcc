//! Why a member can't be talked to, although it may well run: [`Hindrance`].
//!
//! It stays until a person corrects the address or the certificates, so asking again is of no use.

use std::error::Error;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Status;

use crate::client::reasons;

/// Why a member can't be talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// The address asks for an encrypted connection, the member has none.
    IsPlain,
    /// The member wants an encrypted connection, the address does not.
    IsEncrypted,
    /// One of the two does not accept the other's certificate.
    Certificate,
    /// There is no machine of this name.
    Name,
}

impl Hindrance {
    /// Whether a certificate is not accepted. Whatever breaks the protocol of TLS arrives as invalid data, also an answer that is no
    /// part of it.
    pub(crate) fn of_certificate(status: &Status) -> Option<Self> {
        let broken = chain(status).find(|error| {
            let error = error.downcast_ref::<io::Error>();
            error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
        })?;
        (!reasons(broken).contains("corrupt message")).then_some(Self::Certificate)
    }

    /// Whether the name of the member is unknown. A name server that does not answer says something else.
    pub(crate) fn of_name(status: &Status) -> Option<Self> {
        let said = innermost(status);
        let unknown = ["Name or service not known", "No address associated"];
        unknown
            .iter()
            .any(|words| said.contains(words))
            .then_some(Self::Name)
    }

    /// What is wrong, and what puts it right. `said` is the error.
    pub(crate) fn words(self, said: &str) -> (String, &'static str) {
        match self {
            Self::IsPlain => (
                "the address asks for TLS, but the member does not use it".to_owned(),
                "leave out ?tls, ?ca=, ?cert= and ?key=, or start the members with --cert-file and --key-file",
            ),
            Self::IsEncrypted => (
                "the member uses TLS, but the address does not ask for it".to_owned(),
                "add ?ca=FILE with the certificate of its authority, or ?tls if the system trusts it",
            ),
            Self::Certificate => (
                said.to_owned(),
                "check ?ca=, ?cert= and ?key= of the address, and when the certificates expire",
            ),
            Self::Name => (
                said.to_owned(),
                "correct the name of the host in the address",
            ),
        }
    }
}

/// An error with its causes.
fn chain<'a>(status: &'a Status) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |error: &&'a (dyn Error + 'static)| (*error).source();
    std::iter::successors(status.source(), cause)
}

/// What an error says. The message of an error of the connection says no more than "transport error".
pub(crate) fn innermost(status: &Status) -> String {
    match status.source() {
        Some(cause) => reasons(cause),
        None => status.message().to_owned(),
    }
}

/// Whether a member speaks TLS. Only then does it answer a greeting that makes no sense with an alert; others hang up.
pub(crate) async fn speaks_tls(member: &str) -> bool {
    answers(member, b"\x16\x03\x01\x00\x05hello", b"\x15\x03").await
}

/// Whether a member speaks without TLS.
pub(crate) async fn speaks_plain(member: &str) -> bool {
    answers(member, b"GET /version HTTP/1.0\r\n\r\n", b"HTTP/1").await
}

/// Whether the answer to these bytes begins with those.
async fn answers(member: &str, said: &[u8], expected: &[u8]) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(member).await?;
        stream.write_all(said).await?;
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    asked.await.is_ok_and(|answer| answer == expected)
}
