//! Malformed input: cursors and manifests that are invalid in themselves.
//!
//! Workers and administrators send them occasionally. The oracle knows the flaw of each, so the
//! rejection must name that flaw, the input must have no effect, and valid input must never be
//! rejected with that name. The choices come from a stream of their own and do not shift others.
//! Each has a fresh operation id, because some are rejected before ids are compared.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_TOKEN_SIZE,
};
use gossip_contracts::identity::ShardId;
use gossip_coordination::{AsyncCoordinationBackend, AsyncRunManagement};

use super::admin::Admin;
use super::context::Draft;
use super::op::{Flaw, Said, Verb};
use super::splits::spec;
use super::worker::{Worker, cursor_at, keys};

/// A token that is a byte too long.
static LONG_TOKEN: [u8; MAX_TOKEN_SIZE + 1] = [b't'; MAX_TOKEN_SIZE + 1];

/// Metadata that are a byte too long.
static LONG_METADATA: [u8; MAX_METADATA_SIZE + 1] = [b'm'; MAX_METADATA_SIZE + 1];

/// The lowest id of a child shard, which a manifest must not use.
const CHILDS_ID: u64 = 1 << 63;

impl Worker {
    /// Sends a cursor that no shard can have, or completes a shard before its cursor.
    pub(super) async fn send_malformed(&mut self, place: usize) {
        let (range, done) = (self.held[place].range, self.held[place].done());
        let kind = self.cx.odd_below(Flaw::OF_CURSORS.len() as u64 + 1) as usize;
        let flaw = Flaw::OF_CURSORS.get(kind).copied();
        let ends = flaw.is_none() || self.cx.odd_below(2) == 0;
        let verb = if ends { Verb::Complete } else { Verb::Checkpoint };
        let to = match flaw {
            // The cursor needs a completed key to move back from, and a key that is left.
            None if done <= range.0 + 1 => return,
            None => Some(done - 1),
            Some(Flaw::NoKey) => None,
            // Valid except for its length.
            Some(_) => Some(done.max(range.0 + 1)),
        };
        let op_id = self.new_op_id(place);
        let said = Said { to, flaw, ..Said::default() };
        let draft = Draft { said, ..Draft::under(verb, self.held[place].lease_ref, op_id) };
        let (op, tenant, keys) = (self.cx.begin(draft), self.cx.tenant_id, keys(&self.cx));
        let right = to.map_or(CursorUpdate::initial(), |to| cursor_at(&keys, to));
        let mut key = right.last_key().unwrap_or_default().to_vec();
        let cursor = match flaw {
            Some(Flaw::LongKey) => {
                key.resize(MAX_KEY_SIZE + 1, 0);
                CursorUpdate::with_last_key(&key)
            }
            Some(Flaw::LongToken) => CursorUpdate::new(&key, &LONG_TOKEN),
            Some(_) | None => right,
        };
        let lease = self.lease(place).clone();
        if verb == Verb::Complete {
            let result = self.handle.complete(op.now, tenant, &lease, cursor, op_id).await;
            self.cx.end(&op, &result, None);
        } else {
            let result = self.handle.checkpoint(op.now, tenant, &lease, cursor, op_id).await;
            self.cx.end(&op, &result, None);
        }
    }
}

impl Admin {
    /// Registers a malformed manifest.
    pub(super) async fn send_malformed(&mut self, run: u32) {
        let kinds = Flaw::OF_MANIFESTS;
        let flaw = kinds[self.cx.odd_below(kinds.len() as u64) as usize];
        let (id, count) = self.facts(run, |facts| (facts.id, facts.key_count));
        let (keys, half) = (keys(&self.cx), count / 2);
        // Two halves of the keys, except for the flaw.
        let (mut first, mut second) = (spec(&keys, id, (0, half)), 1);
        match flaw {
            Flaw::NoRoots => {}
            Flaw::SameRoot => second = 0,
            Flaw::SharedKeys => first = spec(&keys, id, (0, half + 1)),
            Flaw::NoKeys => first = spec(&keys, id, (0, 0)),
            Flaw::ChildsId => second = CHILDS_ID,
            Flaw::LongMetadata => first.metadata = &LONG_METADATA,
            Flaw::NoKey | Flaw::LongKey | Flaw::LongToken => unreachable!("a manifest has none"),
        }
        let roots = [(0, first), (second, spec(&keys, id, (half, count)))];
        let roots = roots.map(|(shard, spec)| InitialShardInput {
            shard_id: ShardId::from_raw(shard),
            spec,
            cursor: CursorUpdate::initial(),
        });
        let roots = if flaw == Flaw::NoRoots { &roots[..0] } else { &roots[..] };
        let op_id = self.new_op_id();
        let said = Said { flaw: Some(flaw), ..Said::default() };
        let op = self.cx.begin(Draft { said, ..Draft::of_run(Verb::RegisterShards, run, op_id) });
        let tenant = self.cx.tenant_id;
        let result = self.handle.register_shards(op.now, tenant, id, roots, op_id).await;
        self.cx.end(&op, &result, None);
    }
}
