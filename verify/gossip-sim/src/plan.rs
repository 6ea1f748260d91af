//! What a world is made of: everything that decides what happens in it.

use gossip_coordination::store::StoreLimits;

use super::bugs::Bug;
use super::faults::{FaultKind, FaultSet};
use super::random::Stream;
use super::world::CALM_TICKS_MAX;

/// Operations of a world, unless somebody asks for another number.
pub const OPERATIONS_DEFAULT: u64 = 10_000;

/// Everything that decides what happens in a world. Two worlds of one plan are the same, event by
/// event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where all choices come from.
    pub seed: u64,
    /// Operations after which no fault happens any more.
    pub operations: u64,
    /// Tenants, each with an administrator.
    pub tenants: u32,
    /// Workers of each tenant.
    pub workers: u32,
    /// What may go wrong.
    pub faults: FaultSet,
    /// How often, in multiples of the usual rates.
    pub roughness: u64,
    /// Whether the store ties keys to the life of a process.
    pub binds: bool,
    /// The only faults that are injected, by their numbers; all if absent.
    pub only: Option<Vec<u64>>,
    /// What is wrong with the code under test.
    pub bug: Option<Bug>,
    /// Whether to write down what happens.
    pub trace: bool,
    /// Ticks within which everything must finish after the last fault.
    pub calm_ticks: u64,
    /// Whether it is a world of a pair, and for how many ticks it lasts: operations that write what
    /// all tenants share are done at once, and faults leave that alone.
    pub paired_until: Option<u64>,
    /// The only tenant whose processes run; all if absent.
    pub alone: Option<u32>,
}

impl Plan {
    /// The plan of a seed. Worlds differ in size, in roughness, and in which faults they have, so
    /// that what one kind hides from another is seen in a world without it.
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

    /// The size of transactions and pages: small, so that registrations and deletions take several
    /// steps, and large enough for a split.
    pub(super) const fn store_limits(&self) -> StoreLimits {
        StoreLimits { txn_ops: 16, txn_bytes: 64 << 10, page: 8 }
    }

    /// The command that plays this world again, or the plan itself if no command can say it.
    #[must_use]
    pub fn command(&self) -> String {
        let Self { paired_until, alone, calm_ticks, .. } = self;
        if paired_until.is_some() || alone.is_some() || *calm_ticks != CALM_TICKS_MAX {
            return format!("no command runs this world, only a test: {self:?}");
        }
        format!("cargo xtask sim {}", self.words())
    }

    /// The words behind the command that plays this world again.
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
