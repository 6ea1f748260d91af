//! The plan of a simulation: everything that determines its events.

use gossip_coordination::store::StoreLimits;

use super::bugs::Bug;
use super::faults::{FaultKind, FaultSet};
use super::random::Stream;
use super::world::CALM_TICKS_MAX;

/// Default number of operations of a simulation.
pub const OPERATIONS_DEFAULT: u64 = 10_000;

/// Everything that determines the events of a simulation. Two simulations of one plan are the same,
/// event by event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of operations after which no more faults are injected.
    pub operations: u64,
    /// Tenants, each with an administrator.
    pub tenants: u32,
    /// Workers of each tenant.
    pub workers: u32,
    /// Kinds of faults that may be injected.
    pub faults: FaultSet,
    /// Multiplier of the fault rates.
    pub roughness: u64,
    /// Whether the store binds owner keys to the lifetime of a process.
    pub binds: bool,
    /// Numbers of the only faults to inject; all if absent.
    pub only: Option<Vec<u64>>,
    /// The mutant to simulate, if any.
    pub bug: Option<Bug>,
    /// Whether to record a trace.
    pub trace: bool,
    /// Ticks within which everything must finish after the last fault.
    pub calm_ticks: u64,
    /// For a simulation of a pair, the tick at which it ends: operations on shared state are
    /// immediate, and faults do not affect it.
    pub paired_until: Option<u64>,
    /// The only tenant whose processes run; all if absent.
    pub alone: Option<u32>,
}

impl Plan {
    /// Returns the plan of a seed. Plans differ in size, roughness and kinds of faults, so that a
    /// failure that one kind hides appears in a simulation without that kind.
    #[must_use]
    pub fn of_seed(seed: u64, operations: u64, faults: Option<FaultSet>) -> Self {
        let mut stream = Stream::named(seed, "plan", 0);
        let tenants = 1 + stream.below(3) as u32;
        let workers = 2 + stream.below(5) as u32;
        let roughness = [1, 1, 2, 4][stream.below(4) as usize];
        let binds = stream.one_in(2);
        let swarm = FaultKind::ALL.iter().fold(FaultSet::NONE, |set, kind| {
            let usual = kind.suspends().is_empty();
            let wanted = if usual { !stream.one_in(5) } else { stream.one_in(16) };
            if wanted { set.with(*kind) } else { set }
        });
        Self {
            seed,
            operations,
            tenants,
            workers,
            faults: faults.unwrap_or(swarm),
            roughness,
            binds,
            only: None,
            bug: None,
            trace: false,
            calm_ticks: CALM_TICKS_MAX,
            paired_until: None,
            alone: None,
        }
    }

    /// Limits of transactions and pages: small, so that registrations and deletions take several
    /// steps, and large enough for a split.
    pub(super) const fn store_limits(&self) -> StoreLimits {
        StoreLimits { txn_ops: 16, txn_bytes: 64 << 10, page: 8 }
    }

    /// Returns the command that reproduces the simulation, or the plan itself if no command can
    /// express it.
    #[must_use]
    pub fn command(&self) -> String {
        let Self { paired_until, alone, calm_ticks, .. } = self;
        if paired_until.is_some() || alone.is_some() || *calm_ticks != CALM_TICKS_MAX {
            return format!("no command reproduces this plan: {self:?}");
        }
        format!("cargo xtask sim {}", self.words())
    }

    /// Returns the arguments of the command that reproduces the simulation.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { seed, operations, tenants, workers, roughness, binds, .. } = self;
        let only = self.only.as_ref().map_or(String::new(), |only| {
            let list: Vec<String> = only.iter().map(|it| format!("{it:x}")).collect();
            format!(" --only {}", if list.is_empty() { "-".to_owned() } else { list.join(",") })
        });
        let bug = self.bug.map_or(String::new(), |bug| format!(" --bug {bug:?}"));
        format!(
            "--seed {seed} --ops {operations} --tenants {tenants} --workers \
             {workers} --roughness {roughness} --binds {binds} --faults {}{only}{bug} --trace",
            self.faults.list(),
        )
    }
}
