//! The kernel against a naive model.

use gossip_conformance::{Ability, ConformanceTarget, Settings, Tally, check_sequence};
use gossip_coordination::{CoordinatorRuntimeConfig, InMemoryCoordinator};

/// Room for everything that so few steps can make.
const SLAB_BYTES: usize = 1 << 18;

struct InMemory;

impl ConformanceTarget for InMemory {
    type Backend = InMemoryCoordinator;

    fn name(&self) -> &str {
        "the coordinator in memory"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::Handles, Ability::Siblings, Ability::LostReplies]
    }

    fn fresh(&self, settings: Settings) -> InMemoryCoordinator {
        InMemoryCoordinator::new(CoordinatorRuntimeConfig {
            max_shards_per_tenant: settings.max_shards_per_tenant,
            max_total_shards: settings.max_total_shards,
            claim_cooldown_interval: settings.claim_cooldown_interval,
            slab_capacity: SLAB_BYTES,
        })
    }
}

/// Any sequence of operations is answered as a naive model answers it, which was written apart.
///
/// Eight bytes are one step: the operation and its arguments. The model knows nothing of the
/// kernel's code; the coordinator in memory runs the kernel.
pub(crate) fn sequences(data: &[u8]) -> bool {
    answers(data);
    // Every sequence is played; an empty one shows nothing.
    !data.is_empty()
}

/// Plays a sequence, and returns how often each operation got each answer.
pub(crate) fn answers(data: &[u8]) -> Tally {
    let (numbers, _) = data.as_chunks();
    let numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    check_sequence(&InMemory, "a sequence of the fuzzer", numbers)
}
