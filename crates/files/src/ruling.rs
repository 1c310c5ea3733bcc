//! Whether a holder may write a file: the one rule of `tenure check`, of the guard and of the hooks of coding agents.

use tenure::Mode;
use tenure::files::{Reservations, Target};
use tenure::store::{Holder, Lease};

/// What reservations say to a holder that wants to write a file, or something in a folder.
#[derive(Debug)]
pub struct Ruling<'a> {
    /// Those of other holders that forbid it. To read is enough: their holders asked that the file is not changed.
    pub against: Vec<&'a Lease>,
    /// One of its own that covers the file, or everything in the folder, for writing. The setting `guard.require` asks for
    /// it.
    pub own: Option<&'a Lease>,
}

impl<'a> Ruling<'a> {
    /// The ruling on one target. `is_ours` tells whether a holder is the one that wants to write.
    pub fn on(
        reservations: &'a Reservations,
        target: &Target,
        is_ours: impl Fn(&Holder) -> bool,
    ) -> Self {
        // A name in a folder that only a pattern for everything there covers.
        let any = match target.name() {
            name if !target.is_folder() => name.to_owned(),
            "." => "**".to_owned(),
            name => format!("{name}/**"),
        };
        let mut own = reservations.covering(&any);
        let mut against = reservations.at(target);
        against.retain(|lease| !is_ours(&lease.holder));
        Self {
            against,
            own: own.find(|lease| is_ours(&lease.holder) && writes(&lease.mode)),
        }
    }
}

/// Whether a holder in this mode may write what it has reserved.
pub(crate) fn writes(mode: &Mode) -> bool {
    mode.paths().is_none_or(|paths| !paths.is_shared())
}
