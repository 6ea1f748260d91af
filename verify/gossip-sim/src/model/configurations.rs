//! The configurations that are searched, each small enough for an exhaustive search.
//!
//! Together they reach every outcome of every operation (`coverage`). A configuration has two
//! sizes: the short one runs in the tests, the other in the campaign.

use gossip_coordination::{OP_LOG_CAP, ParkReason};

use super::vocabulary::{
    Act, AdminAct, ClaimBy, Command, Cursor, KeyNo, LeaseRef, RequestedAction, RunAct, Tick,
};

/// The size of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a search is part of the tests or of the campaign")]
pub enum Scale {
    /// Seconds, in the tests.
    Short,
    /// Minutes, in the campaign.
    Campaign,
}

/// A line of a menu: an operation of a lease holder, and its operation id slot.
///
/// Lines with the same slot share an operation id, so one is a retry of the other with a changed
/// payload. Slots from [`PREFILLED`] on name operations of the setup.
pub(super) type Line = (u8, Act);

/// The first slot for operations of the setup.
pub(super) const PREFILLED: u8 = 100;

/// A configuration to search.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub purpose: &'static str,
    pub(super) tenants: u8,
    pub(super) workers: u8,
    /// The last tick; the first is 1.
    pub(super) ticks: Tick,
    pub(super) lease: u64,
    pub(super) retries: Option<u32>,
    pub(super) keys: KeyNo,
    /// The setup registers the first one.
    pub(super) manifests: &'static [&'static [(KeyNo, KeyNo)]],
    pub(super) shards_max: usize,
    pub(super) menu: &'static [Line],
    /// Maximum number of different messages of a worker, over all its leases.
    pub(super) sends: u8,
    pub(super) admin: &'static [(AdminAct, u16)],
    pub(super) run_acts: &'static [(RunAct, u16)],
    /// Handoffs that may be accepted.
    pub(super) handoffs: &'static [u8],
    /// Maximum fence: a shard that has it is not granted, revoked or unparked.
    pub(super) fence_max: u8,
    /// Whether the clocks of machines differ by a tick.
    pub(super) skew: bool,
    /// Whether the store has liveness keys of owners.
    pub(super) evidence: bool,
    /// Whether sending and arriving are two moves. If they are one, a message is sent when it first
    /// arrives; only the order in which a worker sends could tell the difference.
    pub(super) sending_is_a_move: bool,
    /// Whether a worker numbers its operations anew under each lease.
    pub(super) ops_by_lease: bool,
    /// Whether operations carry a sequence, in the order of their slots.
    pub(super) sequenced: bool,
    /// Whether the run exists when the search begins.
    pub(super) run_exists: bool,
    /// Operations of the first worker before the search begins.
    pub(super) prefill: &'static [Act],
    /// Operations on the run before the search begins.
    pub(super) prefill_run: &'static [RunAct],
    /// Whether missing shards are acquired.
    pub(super) probes: bool,
    /// Lines of the menu that the first lease holder sent before the search begins, as bits.
    pub(super) on_the_way: u32,
    /// Whether workers follow the protocol; others send anything at any time.
    pub(super) honest: bool,
}

/// The default values.
const PLAIN: Config = Config {
    name: "",
    purpose: "",
    tenants: 1,
    workers: 2,
    ticks: 4,
    lease: 2,
    retries: None,
    keys: 3,
    manifests: &[&[(0, 3)]],
    shards_max: 8,
    menu: &[],
    sends: 2,
    admin: &[],
    run_acts: &[],
    handoffs: &[],
    fence_max: 4,
    skew: false,
    evidence: false,
    sending_is_a_move: false,
    ops_by_lease: true,
    sequenced: false,
    run_exists: true,
    prefill: &[],
    prefill_run: &[],
    probes: false,
    on_the_way: 0,
    honest: true,
};

impl Config {
    /// Returns the operation id of a line under `lease`. Ranges of ids are disjoint: fences and
    /// slots are below 20, workers below 4.
    pub(super) fn op_id(&self, lease: LeaseRef, slot: u8) -> u16 {
        if slot >= PREFILLED {
            return 9_000 + u16::from(slot - PREFILLED);
        }
        let fence = if self.ops_by_lease { u16::from(lease.fence) } else { 0 };
        1_000 + u16::from(lease.worker) * 400 + fence * 20 + u16::from(slot)
    }

    /// Returns the sequence of a line: operations of the setup come first, then the others in the
    /// order of their slots. A worker sends them in any order, so some are overtaken.
    pub(super) fn sequence(&self, slot: u8) -> u8 {
        if !self.sequenced {
            return 0;
        }
        let prefilled = u8::try_from(self.prefill.len()).expect("a short setup");
        if slot >= PREFILLED { slot - PREFILLED + 1 } else { prefilled + slot + 1 }
    }

    /// Returns the commands of the setup.
    pub(super) fn setup(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        if !self.run_exists {
            return commands;
        }
        for tenant in 0..self.tenants {
            let run = |act, op_id| Command::Run { tenant, act, op_id };
            commands.extend([run(RunAct::Create, 0), run(RunAct::Register(0), 8_000)]);
            let more = self.prefill_run.iter().zip(8_001..);
            commands.extend(more.map(|(act, op_id)| run(*act, op_id)));
        }
        if !self.prefill.is_empty() {
            let way = ClaimBy::Acquire { alive: false };
            commands.push(Command::Claim { tenant: 0, shard: 0, worker: 0, way });
            let lease = LeaseRef { tenant: 0, shard: 0, worker: 0, fence: 2, from: 0 };
            for (act, slot) in self.prefill.iter().copied().zip(PREFILLED..) {
                let (op_id, sequence) = (self.op_id(lease, slot), self.sequence(slot));
                commands.push(Command::Held { tenant: 0, lease, act, op_id, sequence });
            }
        }
        commands
    }
}

const FIRST: Cursor = Cursor::At(0);
const SECOND: Cursor = Cursor::At(1);
const THIRD: Cursor = Cursor::At(2);

const fn offer(handoff: u8, to: u8, until: Tick, cursor: Cursor) -> Act {
    Act::Offer { handoff, to, until, cursor }
}

const fn replace(start: KeyNo, cut: KeyNo, end: KeyNo, carried: Cursor) -> Act {
    Act::Replace { start, cut, end, carried, hole: false }
}

const fn residual(start: KeyNo, cut: KeyNo, end: KeyNo) -> Act {
    Act::Residual { start, cut, end }
}

/// Returns every configuration in one size.
#[must_use]
pub fn configurations(scale: Scale) -> Vec<Config> {
    let short = scale == Scale::Short;
    vec![
        lease(short),
        skew(short),
        replay(short),
        eviction(short),
        forgotten(short),
        sequence(short),
        splits(short),
        attempts(short),
        handoff(short),
        moves(short),
        runs(short),
        run_log(short),
        tenants(short),
        requests(short),
        inputs(short),
        everything(short),
        pairs(short),
    ]
}

/// Returns the configuration of that name.
#[must_use]
pub fn configuration(name: &str, scale: Scale) -> Option<Config> {
    configurations(scale).into_iter().find(|config| config.name == name)
}

fn lease(short: bool) -> Config {
    Config {
        name: "lease",
        purpose: "leases, fences and cursors; requests lost, repeated and late",
        workers: if short { 2 } else { 3 },
        ticks: if short { 4 } else { 5 },
        menu: const {
            &[
                (0, Act::Renew),
                (1, Act::Checkpoint(FIRST)),
                (2, Act::Checkpoint(SECOND)),
                (3, Act::Complete(THIRD)),
            ]
        },
        sends: 2,
        fence_max: 4,
        sending_is_a_move: true,
        ..PLAIN
    }
}

fn skew(short: bool) -> Config {
    Config {
        name: "skew",
        purpose: "clocks that differ by a tick, and owners that seem alive",
        ticks: if short { 3 } else { 5 },
        menu: const {
            &[
                (0, Act::Renew),
                (1, Act::Checkpoint(FIRST)),
                (2, Act::Complete(THIRD)),
                (3, Act::Release { clean: true }),
            ]
        },
        sends: if short { 1 } else { 2 },
        fence_max: if short { 3 } else { 4 },
        skew: true,
        evidence: true,
        ..PLAIN
    }
}

fn replay(short: bool) -> Config {
    Config {
        name: "replay",
        purpose: "retries under the same and other leases, with the same and other payloads",
        menu: const {
            &[
                (0, Act::Checkpoint(FIRST)),
                (0, Act::Checkpoint(SECOND)),
                (1, Act::Complete(THIRD)),
                (1, Act::Complete(SECOND)),
                (1, Act::Park(ParkReason::Other)),
                (2, residual(0, 2, 3)),
                (2, residual(0, 1, 3)),
                (3, Act::Release { clean: true }),
                (3, Act::Release { clean: false }),
                (4, Act::Park(ParkReason::NotFound)),
                (4, replace(0, 1, 3, Cursor::Absent)),
                (5, replace(0, 1, 3, Cursor::Absent)),
                (5, replace(0, 2, 3, Cursor::Absent)),
            ]
        },
        sends: 2,
        ops_by_lease: false,
        ticks: if short { 2 } else { 3 },
        lease: 1,
        fence_max: 3,
        workers: if short { 1 } else { 2 },
        ..PLAIN
    }
}

/// The log holds sixteen operations: one split and fifteen checkpoints. The next operation evicts
/// the split, which must still be replayed, and then checkpoints, which must not.
fn eviction(short: bool) -> Config {
    const AGAIN: Act = Act::Checkpoint(FIRST);
    Config {
        name: "eviction",
        purpose: "a full log, and retries of evicted operations",
        prefill: const {
            &[
                residual(0, 2, 3),
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
            ]
        },
        menu: const {
            &[
                (PREFILLED, residual(0, 2, 3)),
                (PREFILLED, residual(0, 1, 3)),
                (PREFILLED + 1, AGAIN),
                (PREFILLED + 1, Act::Checkpoint(SECOND)),
                (PREFILLED + 2, AGAIN),
                (0, Act::Checkpoint(SECOND)),
                (1, Act::Complete(SECOND)),
                (2, AGAIN),
            ]
        },
        ticks: 4,
        sends: 2,
        fence_max: if short { 3 } else { 4 },
        ..PLAIN
    }
}

/// The log holds a withdrawal and fifteen checkpoints. The next operation evicts the withdrawal.
/// Then the withdrawn offer, which is still in flight, can be opened again, and a handoff may redo
/// keys that the source has done since. All other rules must hold.
fn forgotten(short: bool) -> Config {
    const AGAIN: Act = Act::Checkpoint(FIRST);
    const OFFER: Act = offer(1, 1, 3, Cursor::Absent);
    Config {
        name: "forgotten",
        purpose: "a withdrawn offer that arrives after the log evicted the withdrawal",
        prefill: const {
            &[
                OFFER,
                Act::Withdraw { handoff: 1 },
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
                AGAIN,
            ]
        },
        menu: const {
            &[
                (PREFILLED, OFFER),
                (PREFILLED + 1, Act::Withdraw { handoff: 1 }),
                (0, Act::Checkpoint(SECOND)),
                (1, Act::Complete(THIRD)),
                (2, Act::Renew),
            ]
        },
        handoffs: &[1],
        on_the_way: 0b11,
        sends: if short { 4 } else { 5 },
        fence_max: if short { 4 } else { 5 },
        ticks: if short { 4 } else { 5 },
        honest: false,
        ..PLAIN
    }
}

/// The log holds checkpoints with the sequences 1 to 16. The next operation evicts the first, whose
/// retry must be refused, as must every operation that a later one overtook. A second grant
/// restarts the sequence.
fn sequence(short: bool) -> Config {
    const AGAIN: Act = Act::Checkpoint(FIRST);
    Config {
        name: "sequence",
        purpose: "operations with a sequence: evicted, overtaken, and of a second lease",
        prefill: const { &[AGAIN; OP_LOG_CAP] },
        menu: const {
            &[
                (PREFILLED, AGAIN),
                (PREFILLED + 1, AGAIN),
                (0, Act::Park(ParkReason::Other)),
                (1, Act::Release { clean: true }),
                (2, replace(0, 2, 3, FIRST)),
                (3, residual(0, 2, 3)),
                (4, offer(1, 1, 3, Cursor::Absent)),
                (5, Act::Complete(THIRD)),
                (6, Act::Checkpoint(SECOND)),
                (7, Act::Withdraw { handoff: 2 }),
                (8, AGAIN),
            ]
        },
        handoffs: &[1],
        ticks: if short { 3 } else { 4 },
        sends: if short { 2 } else { 3 },
        fence_max: if short { 3 } else { 4 },
        sequenced: true,
        honest: false,
        ..PLAIN
    }
}

fn splits(short: bool) -> Config {
    Config {
        name: "splits",
        purpose: "both splits, of roots, children and residuals, with and without progress",
        keys: 4,
        manifests: &[&[(0, 4)]],
        shards_max: 4,
        ticks: if short { 3 } else { 4 },
        menu: const {
            &[
                (0, replace(0, 2, 4, Cursor::Absent)),
                (1, replace(0, 2, 4, FIRST)),
                (2, residual(0, 2, 4)),
                (3, residual(0, 1, 2)),
                (4, replace(2, 3, 4, Cursor::Absent)),
                (5, Act::Checkpoint(FIRST)),
                (6, Act::Complete(SECOND)),
                (7, Act::Complete(Cursor::At(3))),
                (8, Act::Replace { start: 0, cut: 2, end: 4, carried: Cursor::Absent, hole: true }),
            ]
        },
        sends: 2,
        fence_max: 3,
        ..PLAIN
    }
}

fn attempts(short: bool) -> Config {
    Config {
        name: "attempts",
        purpose: "attempts, parking by owner and by claim, unparking, revocation",
        lease: 1,
        ticks: if short { 3 } else { 4 },
        retries: Some(1),
        menu: const {
            &[
                (0, Act::Park(ParkReason::Poisoned)),
                (1, Act::Release { clean: true }),
                (2, Act::Release { clean: false }),
                (3, Act::Checkpoint(FIRST)),
                (4, replace(0, 1, 3, Cursor::Absent)),
            ]
        },
        admin: &[
            (AdminAct::Unpark, 1),
            (AdminAct::Revoke { fence: Some(2) }, 2),
            (AdminAct::Unpark, 2),
            (AdminAct::Revoke { fence: None }, 1),
        ],
        sends: 1,
        fence_max: if short { 4 } else { 5 },
        ..PLAIN
    }
}

fn handoff(short: bool) -> Config {
    Config {
        name: "handoff",
        purpose: "one handoff: late offers, withdrawals, crashes, wrong destinations",
        workers: if short { 2 } else { 3 },
        ticks: if short { 3 } else { 4 },
        menu: const {
            &[
                (0, offer(1, 1, 3, FIRST)),
                (1, Act::Withdraw { handoff: 1 }),
                (2, Act::Checkpoint(FIRST)),
                (3, Act::Checkpoint(SECOND)),
                (4, Act::Renew),
            ]
        },
        handoffs: &[1],
        sends: if short { 3 } else { 4 },
        fence_max: 3,
        sending_is_a_move: true,
        lease: if short { 1 } else { 2 },
        ..PLAIN
    }
}

fn moves(short: bool) -> Config {
    Config {
        name: "moves",
        purpose: "two handoffs, there and back, with every operation of a frozen source",
        ticks: if short { 1 } else { 4 },
        menu: const {
            &[
                (0, offer(1, 1, 3, Cursor::Absent)),
                (0, offer(1, 1, 4, Cursor::Absent)),
                (1, offer(2, 0, 4, FIRST)),
                (2, offer(1, 1, 3, Cursor::Absent)),
                (3, Act::Withdraw { handoff: 1 }),
                (3, Act::Withdraw { handoff: 2 }),
                (4, Act::Complete(THIRD)),
                (5, Act::Park(ParkReason::Other)),
                (6, Act::Release { clean: true }),
                (7, residual(0, 1, 3)),
                (8, replace(0, 1, 3, Cursor::Absent)),
                (9, Act::Checkpoint(FIRST)),
                (10, offer(3, 1, 15, Cursor::Absent)),
            ]
        },
        handoffs: &[1, 2],
        sends: 2,
        fence_max: 3,
        // The short form merges the two, and lets a frozen source send forbidden operations.
        sending_is_a_move: !short,
        honest: !short,
        lease: if short { 1 } else { 2 },
        ..PLAIN
    }
}

fn runs(short: bool) -> Config {
    Config {
        name: "runs",
        purpose: "runs from creation to deletion, with concurrent work",
        ticks: if short { 1 } else { 2 },
        lease: 1,
        workers: 1,
        shards_max: 3,
        manifests: &[&[(0, 2), (2, 3)], &[(0, 2), (1, 3)], &[(0, 1), (1, 2), (2, 3), (3, 4)]],
        run_exists: false,
        run_acts: &[
            (RunAct::Create, 500),
            (RunAct::Register(0), 501),
            (RunAct::Register(0), 502),
            (RunAct::Register(1), 501),
            (RunAct::Register(1), 503),
            (RunAct::Register(2), 504),
            (RunAct::Complete, 505),
            (RunAct::Fail, 506),
            (RunAct::Cancel, 507),
            (RunAct::Pause, 508),
            (RunAct::Resume, 509),
            (RunAct::Delete, 510),
            (RunAct::Collect(0), 0),
            (RunAct::Collect(1), 0),
            (RunAct::Complete, 508),
            (RunAct::Fail, 508),
            (RunAct::Cancel, 508),
            (RunAct::Pause, 501),
            (RunAct::Resume, 508),
            (RunAct::Delete, 508),
        ],
        menu: const {
            &[
                (0, Act::Complete(SECOND)),
                (1, Act::Complete(THIRD)),
                (2, Act::Renew),
                (3, replace(0, 1, 2, Cursor::Absent)),
                (4, residual(0, 1, 2)),
                (5, offer(1, 1, 2, Cursor::Absent)),
                (6, Act::Park(ParkReason::Other)),
                (7, Act::Checkpoint(FIRST)),
                (8, Act::Release { clean: true }),
                (9, Act::Withdraw { handoff: 1 }),
            ]
        },
        admin: &[
            (AdminAct::Unpark, 1),
            (AdminAct::Revoke { fence: None }, 2),
            (AdminAct::Request { what: RequestedAction::Release, expires: 3 }, 3),
        ],
        handoffs: &[1],
        sends: 1,
        fence_max: if short { 2 } else { 3 },
        probes: true,
        keys: 4,
        ..PLAIN
    }
}

/// The log of a run holds eight operations, and seven were applied.
fn run_log(short: bool) -> Config {
    Config {
        name: "run-log",
        purpose: "a full run log, and retries of evicted operations",
        ticks: if short { 2 } else { 3 },
        prefill_run: &[
            RunAct::Pause,
            RunAct::Resume,
            RunAct::Pause,
            RunAct::Resume,
            RunAct::Pause,
            RunAct::Resume,
            RunAct::Pause,
        ],
        run_acts: &[
            (RunAct::Pause, 8_001),
            (RunAct::Resume, 8_001),
            (RunAct::Resume, 8_002),
            (RunAct::Pause, 8_003),
            (RunAct::Resume, 600),
            (RunAct::Pause, 601),
            (RunAct::Register(0), 8_000),
            (RunAct::Register(0), 8_002),
            (RunAct::Complete, 602),
            (RunAct::Cancel, 603),
        ],
        menu: &[(0, Act::Complete(THIRD))],
        sends: 1,
        fence_max: 3,
        ..PLAIN
    }
}

fn tenants(short: bool) -> Config {
    Config {
        name: "tenants",
        purpose: "two tenants with the same ids, and leases presented to the wrong one",
        tenants: 2,
        // Both tenants use the same worker id, so that only the tenant distinguishes two leases.
        workers: 1,
        ticks: if short { 2 } else { 3 },
        lease: 1,
        menu: const {
            &[
                (0, Act::Renew),
                (1, Act::Checkpoint(FIRST)),
                (2, Act::Complete(THIRD)),
                (3, Act::Park(ParkReason::Other)),
                (4, replace(0, 1, 3, Cursor::Absent)),
                (5, residual(0, 1, 3)),
                (6, Act::Release { clean: true }),
                (7, offer(1, 1, 2, Cursor::Absent)),
                (8, Act::Withdraw { handoff: 1 }),
            ]
        },
        handoffs: &[1],
        run_acts: &[(RunAct::Cancel, 500)],
        sends: 2,
        fence_max: 3,
        ..PLAIN
    }
}

fn requests(short: bool) -> Config {
    Config {
        name: "requests",
        purpose: "requests to lease holders: expiry, fulfilment, revocation",
        ticks: if short { 3 } else { 4 },
        menu: const {
            &[
                (0, Act::Renew),
                (1, Act::Checkpoint(FIRST)),
                (2, residual(0, 2, 3)),
                (3, Act::Release { clean: true }),
                (4, offer(1, 1, 4, Cursor::Absent)),
                (5, Act::Withdraw { handoff: 1 }),
                (6, Act::Complete(SECOND)),
            ]
        },
        admin: &[
            (AdminAct::Request { what: RequestedAction::Split, expires: 3 }, 1),
            (AdminAct::Request { what: RequestedAction::HandOff, expires: 3 }, 1),
            (AdminAct::Request { what: RequestedAction::Withdraw, expires: 4 }, 2),
            (AdminAct::Revoke { fence: None }, 3),
        ],
        handoffs: &[1],
        sends: 1,
        fence_max: if short { 3 } else { 4 },
        ..PLAIN
    }
}

fn inputs(short: bool) -> Config {
    Config {
        name: "inputs",
        purpose: "cursors that are missing, oversized, outside or behind",
        ticks: if short { 2 } else { 3 },
        manifests: &[&[(0, 2), (2, 3)]],
        menu: const {
            &[
                (0, Act::Checkpoint(Cursor::Absent)),
                (1, Act::Checkpoint(Cursor::LongKey)),
                (2, Act::Checkpoint(Cursor::LongToken(1))),
                (3, Act::Checkpoint(SECOND)),
                (4, Act::Checkpoint(FIRST)),
                (5, Act::Checkpoint(THIRD)),
                (6, Act::Complete(Cursor::Absent)),
                (7, Act::Complete(Cursor::LongKey)),
                (8, Act::Complete(Cursor::LongToken(1))),
                (9, Act::Complete(FIRST)),
                (10, Act::Complete(THIRD)),
                (11, offer(1, 1, 3, Cursor::LongKey)),
                (12, offer(1, 1, 3, Cursor::LongToken(1))),
                (13, offer(1, 1, 3, FIRST)),
                (14, offer(1, 1, 3, THIRD)),
                (13, offer(1, 1, 3, SECOND)),
                (15, offer(2, 1, 3, FIRST)),
            ]
        },
        sends: 2,
        fence_max: 2,
        lease: 1,
        honest: false,
        ..PLAIN
    }
}

fn everything(short: bool) -> Config {
    Config {
        name: "everything",
        purpose: "every operation in one configuration, one message from each worker",
        ticks: if short { 2 } else { 3 },
        lease: 1,
        retries: Some(1),
        shards_max: 3,
        menu: const {
            &[
                (0, Act::Renew),
                (1, Act::Checkpoint(FIRST)),
                (2, Act::Complete(THIRD)),
                (3, Act::Park(ParkReason::Other)),
                (4, replace(0, 1, 3, Cursor::Absent)),
                (5, residual(0, 1, 3)),
                (6, Act::Release { clean: false }),
                (7, offer(1, 1, 3, FIRST)),
                (8, Act::Withdraw { handoff: 1 }),
            ]
        },
        admin: &[
            (AdminAct::Unpark, 1),
            (AdminAct::Revoke { fence: None }, 2),
            (AdminAct::Request { what: RequestedAction::Split, expires: 3 }, 3),
        ],
        run_acts: &[
            (RunAct::Complete, 500),
            (RunAct::Fail, 501),
            (RunAct::Pause, 502),
            (RunAct::Resume, 503),
            (RunAct::Delete, 504),
        ],
        handoffs: &[1],
        sends: 1,
        fence_max: if short { 2 } else { 3 },
        ..PLAIN
    }
}

fn pairs(short: bool) -> Config {
    Config {
        name: "pairs",
        purpose: "every operation in one configuration, two messages from each worker, fewer ticks",
        ticks: if short { 1 } else { 2 },
        sends: if short { 1 } else { 2 },
        fence_max: 3,
        ..everything(short)
    }
}
