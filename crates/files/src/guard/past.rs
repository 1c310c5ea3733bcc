//! What was reserved at an earlier time, as far as the history tells: [`PastReservations`].

use jiff::{SignedDuration, Timestamp};
use tenure::Tenure;
use tenure::store::call_deadline;
use tenure::who::Who;
use tenure_core::{ErrorKind, EventKind, Evidence, HistoryQuery, Key, StoreError};

use super::judge::Reserved;
use super::records::Holding;

/// Git writes the time of a commit in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// All reservations of the history, and those in effect.
#[derive(Debug)]
pub(crate) struct PastReservations(Vec<HeldSpan>);

#[derive(Debug)]
struct HeldSpan {
    holding: Holding,
    from: Timestamp,
    /// `None` while it is in effect.
    until: Option<Timestamp>,
    is_own: bool,
}

impl PastReservations {
    pub(crate) fn read(tenure: &Tenure, reserved: &Reserved, me: &Who) -> Result<Self, StoreError> {
        let query = HistoryQuery {
            key: Some(Key::paths()),
            ..HistoryQuery::default()
        };
        if let Some(damaged) = tenure
            .store()
            .damaged_events(&query, call_deadline())?
            .into_iter()
            .next()
        {
            let error = StoreError::new(ErrorKind::Damaged, damaged);
            return Err(error.fix("put it right: tenure store repair"));
        }
        let mut spans: Vec<HeldSpan> = Vec::new();
        for event in tenure.store().history(&query, call_deadline())? {
            match event.kind {
                EventKind::Granted => spans.push(HeldSpan {
                    is_own: me.names().contains(&event.holder),
                    holding: Holding {
                        token: event.token.0,
                        holder: event.holder,
                        mode: event.mode,
                    },
                    from: event.at,
                    // Unless its end, or the lease itself, is found below.
                    until: Some(event.at),
                }),
                EventKind::Released | EventKind::Expired | EventKind::Dead | EventKind::Forced => {
                    // An end may be recorded later than it came.
                    let expired = event.evidence.as_ref().and_then(Evidence::expired_at);
                    let until = expired.map_or(event.at, |at| at.min(event.at));
                    let mut ended = spans.iter_mut().rev();
                    if let Some(span) = ended.find(|span| span.holding.token == event.token.0) {
                        span.until = Some(until);
                    }
                }
                _ => {}
            }
        }
        for (lease, verdict) in reserved.all() {
            // When a dead holder died is not known.
            let ended = |evidence: &Evidence| evidence.expired_at().unwrap_or(lease.acquired_at);
            let until = verdict.ended().map(ended);
            spans.retain(|span| span.holding.token != lease.token.0);
            spans.push(HeldSpan {
                holding: lease.into(),
                from: lease.acquired_at,
                until,
                is_own: me.is(&lease.holder),
            });
        }
        Ok(Self(spans))
    }

    fn covering<'a>(&'a self, path: &'a str, at: Timestamp) -> impl Iterator<Item = &'a HeldSpan> {
        let end = at.saturating_add(SECOND).unwrap_or(at);
        self.0.iter().filter(move |span| {
            span.from <= at
                && span.until.is_none_or(|until| until >= end)
                && span.holding.covers(path)
        })
    }

    /// The reservation of another holder that covered the path in the whole second that begins then.
    pub(crate) fn against(&self, path: &str, at: Timestamp) -> Option<Holding> {
        let mut covering = self.covering(path, at);
        covering
            .find(|span| !span.is_own)
            .map(|span| span.holding.clone())
    }

    /// A reservation of our own at that time.
    pub(crate) fn own(&self, path: &str, at: Timestamp) -> Option<Holding> {
        let mut covering = self.covering(path, at);
        covering
            .find(|span| span.is_own && span.holding.writes())
            .map(|span| span.holding.clone())
    }
}
