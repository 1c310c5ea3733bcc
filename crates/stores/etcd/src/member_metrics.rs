//! What a member says of itself outside of etcd's API, by HTTP on the port of its clients: [`MemberMetrics`].
//!
//! etcd's API has no clock, and before 3.6 no quota. The page of metrics has the quota, and the header of every page has the
//! time. A member may keep its pages on another port (`--listen-client-http-urls`): then nothing is known, which is no
//! error.

use std::pin::pin;

use http::{HeaderMap, Request, header};
use http_body::Body as _;
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::GrpcService as _;
use tonic::transport::Channel;

/// The page of metrics.
const METRICS: &str = "/metrics";

/// The metric with the quota.
const QUOTA: &str = "etcd_server_quota_backend_bytes ";

/// The largest page that is read. That of etcd 3.5 has 150 KB.
const LARGEST: u64 = 4 * 1024 * 1024;

/// What a member says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemberMetrics {
    /// How many whole seconds its clock is ahead of this machine's; `0` if they may be the same.
    pub(crate) clock_ahead: Option<i64>,
    /// The limit of its database, in bytes.
    pub(crate) quota: Option<u64>,
}

impl MemberMetrics {
    /// Asks a member without encryption. Its port tells HTTP/1 from etcd's API.
    pub(crate) async fn plain(member: &str, now: impl Fn() -> Timestamp) -> Option<Self> {
        let mut stream = TcpStream::connect(member).await.ok()?;
        let asked = now();
        // 1.0: the page comes as it is, and the connection ends with it.
        let request = format!("GET {METRICS} HTTP/1.0\r\nHost: {member}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut page = Vec::new();
        let mut stream = stream.take(LARGEST);
        stream.read_to_end(&mut page).await.ok()?;
        let answered = now();
        let page = String::from_utf8_lossy(&page);
        let (head, body) = page.split_once("\r\n\r\n")?;
        let date = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("date").then_some(value.trim())
        });
        Some(Self::of(date, body, asked, answered))
    }

    /// Asks a member with encryption, through the connection for etcd's API.
    pub(crate) async fn encrypted(
        mut channel: Channel,
        member: &str,
        now: impl Fn() -> Timestamp,
    ) -> Option<Self> {
        let request = Request::get(format!("https://{member}{METRICS}"));
        let request = request.body(tonic::body::Body::empty()).ok()?;
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .ok()?;
        let asked = now();
        let answer = channel.call(request).await.ok()?;
        let answered = now();
        let (head, body) = answer.into_parts();
        let mut body = pin!(body);
        let mut page = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await
        {
            if let Ok(data) = frame.ok()?.into_data() {
                page.extend_from_slice(&data);
            }
            if u64::try_from(page.len()).is_ok_and(|length| length > LARGEST) {
                break;
            }
        }
        let page = String::from_utf8_lossy(&page);
        Some(Self::of(date(&head.headers), &page, asked, answered))
    }

    fn of(date: Option<&str>, page: &str, asked: Timestamp, answered: Timestamp) -> Self {
        let quota = page.lines().find_map(|line| line.strip_prefix(QUOTA));
        let quota = quota.and_then(|quota| quota.trim().parse::<f64>().ok());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a metric is a float; one that is no size becomes 0 or the largest number"
        )]
        let quota = quota.map(|quota| quota as u64).filter(|quota| *quota > 0);
        Self {
            clock_ahead: date.and_then(|date| ahead(date, asked, answered)),
            quota,
        }
    }
}

fn date(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::DATE)?.to_str().ok()
}

/// How far a clock that showed this date is ahead, if it was asked and answered at these times here. A date has whole
/// seconds, so only what is certain counts.
fn ahead(date: &str, asked: Timestamp, answered: Timestamp) -> Option<i64> {
    let shown = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    let least = shown.duration_since(answered);
    let most = shown
        .duration_since(asked)
        .saturating_add(SignedDuration::from_secs(1));
    Some(if least.is_positive() {
        least.as_secs()
    } else if most.is_negative() {
        most.as_secs()
    } else {
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_certain_difference_of_two_clocks_counts() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let date = "Tue, 17 Nov 2026 19:45:42 GMT";
        for (asked, answered, ahead) in [
            ("2026-11-17T19:45:42.2Z", "2026-11-17T19:45:42.3Z", Some(0)),
            ("2026-11-17T19:45:41.9Z", "2026-11-17T19:45:42.1Z", Some(0)),
            ("2026-11-17T19:45:43.9Z", "2026-11-17T19:45:43.9Z", Some(0)),
            (
                "2026-11-17T19:45:53.5Z",
                "2026-11-17T19:45:53.6Z",
                Some(-10),
            ),
            ("2026-11-17T19:45:31.4Z", "2026-11-17T19:45:31.9Z", Some(10)),
            // A member that is asked for long says little.
            ("2026-11-17T19:45:20Z", "2026-11-17T19:45:50Z", Some(0)),
        ] {
            assert_eq!(
                super::ahead(date, at(asked), at(answered)),
                ahead,
                "{asked}"
            );
        }
        assert_eq!(
            super::ahead(
                "today",
                at("2026-11-17T19:45:42Z"),
                at("2026-11-17T19:45:42Z")
            ),
            None
        );
    }

    #[test]
    fn the_quota_is_read_from_the_page_of_metrics() {
        let page = "# TYPE etcd_server_quota_backend_bytes gauge\netcd_server_quota_backend_bytes 2.147483648e+09\n";
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(MemberMetrics::of(None, page, now, now).quota, Some(2 << 30));
        assert_eq!(
            MemberMetrics::of(None, "", now, now),
            MemberMetrics::default()
        );
    }
}
