//! The moves that are possible in a state.
//!
//! A message that was sent under a lease stays in flight forever: each delivery may be the first or
//! a repetition, in any order, at any time; a message that is never delivered was dropped. A worker
//! never forgets a lease, so every former holder continues as a zombie. A reply only adds to the
//! possible actions of its receiver, so a lost or late reply is the behaviour of a worker that does
//! not use it, and needs no state. Messages of administrators are always in flight.
//!
//! Honest workers follow the documentation: they report only keys that they processed, and a source
//! that sent an offer sends nothing but renewals and the withdrawal until the withdrawal is
//! acknowledged. Everything else is up to network, clock and chance.

use super::kernel::NOTHING;
use super::state::{Held, Move, ShardEntry, State};
use super::vocabulary::{Act, AdminAct, ClaimBy, Command, Mark};
use super::world::World;

impl World {
    /// Returns every move that is possible in `state`.
    pub(super) fn moves(&mut self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        if state.now < self.config.ticks {
            moves.push(Move::Tick);
        }
        for held in 0..state.held.len() {
            self.moves_of_holder(state, held, &mut moves);
        }
        for entry in &state.shards {
            self.moves_about_shard(state, *entry, &mut moves);
        }
        for tenant in 0..self.config.tenants {
            self.moves_about_run(state, tenant, &mut moves);
        }
        moves
    }

    fn moves_of_holder(&mut self, state: &State, index: usize, moves: &mut Vec<Move>) {
        let held = state.held[index];
        let index = u8::try_from(index).expect("a configuration has few leases");
        let may_send = state.sent_by(held.lease.worker) < u32::from(self.config.sends);
        for ((slot, act), line) in self.config.menu.iter().zip(0_u8..) {
            let sent = held.has_sent(line);
            if !(sent || may_send && self.would_send(held, *act)) {
                continue;
            }
            if !sent && self.config.sending_is_a_move {
                moves.push(Move::Send { held: index, line });
                continue;
            }
            let op_id = self.config.op_id(held.lease, *slot);
            let sequence = self.config.sequence(*slot);
            // With two tenants, each message is also sent to the wrong one.
            for tenant in 0..self.config.tenants {
                let (lease, act) = (held.lease, *act);
                let command = Command::Held { tenant, lease, act, op_id, sequence };
                self.deliveries(state, command, Some((index, line)), moves);
            }
        }
    }

    /// Returns whether a worker sends this now.
    fn would_send(&self, held: Held, act: Act) -> bool {
        if !self.config.honest {
            return true;
        }
        if held.frozen != 0 {
            return act == Act::Renew || act == Act::Withdraw { handoff: held.frozen };
        }
        match act {
            // An offer carries the final position.
            Act::Offer { cursor, .. } => self.worked(held) <= cursor.mark().max(held.lease.from),
            Act::Renew
            | Act::Checkpoint(_)
            | Act::Complete(_)
            | Act::Park(_)
            | Act::Replace { .. }
            | Act::Residual { .. }
            | Act::Release { .. }
            | Act::Withdraw { .. } => true,
        }
    }

    fn moves_about_shard(&mut self, state: &State, entry: ShardEntry, moves: &mut Vec<Move>) {
        let ShardEntry { tenant, shard, record, .. } = entry;
        let known = record != NOTHING;
        let may_rise = !known || self.kernel.facts(record).fence < self.config.fence_max;
        for (act, op_id) in self.config.admin {
            if may_rise || matches!(act, AdminAct::Request { .. }) {
                let command = Command::Admin { tenant, shard, act: *act, op_id: *op_id };
                self.deliveries(state, command, None, moves);
            }
        }
        if !may_rise {
            return;
        }
        for worker in 0..self.config.workers {
            for way in self.ways() {
                let command = Command::Claim { tenant, shard, worker, way };
                self.deliveries(state, command, None, moves);
            }
        }
    }

    fn ways(&self) -> Vec<ClaimBy> {
        let mut ways = vec![ClaimBy::Acquire { alive: false }];
        if self.config.evidence {
            ways.push(ClaimBy::Acquire { alive: true });
        }
        ways.extend(self.config.handoffs.iter().map(|handoff| ClaimBy::Accept(*handoff)));
        ways
    }

    fn moves_about_run(&mut self, state: &State, tenant: u8, moves: &mut Vec<Move>) {
        if self.config.probes && state.shards_of(tenant).next().is_none() {
            let absent = ShardEntry { tenant, shard: 0, record: NOTHING, oracle: NOTHING };
            self.moves_about_shard(state, absent, moves);
        }
        for (act, op_id) in self.config.run_acts {
            let command = Command::Run { tenant, act: *act, op_id: *op_id };
            self.deliveries(state, command, None, moves);
        }
    }

    fn deliveries(
        &mut self,
        state: &State,
        command: Command,
        from: Option<(u8, u8)>,
        moves: &mut Vec<Move>,
    ) {
        let command = self.kernel.commands.intern(command).0;
        moves.push(Move::Deliver { command, at: state.now, from });
        if self.config.skew && state.now > 1 {
            moves.push(Move::Deliver { command, at: state.now - 1, from });
        }
    }

    /// Records that a line was sent; a line that was sent before changes nothing.
    pub(super) fn send(&self, state: &mut State, held: u8, line: u8) {
        let held = &mut state.held[usize::from(held)];
        if held.has_sent(line) {
            return;
        }
        let (_, act) = self.config.menu[usize::from(line)];
        if let Act::Offer { handoff, .. } = act {
            held.frozen = handoff;
        }
        held.sent |= 1 << line;
    }

    /// Returns how far a holder has worked. This follows from the lines that were sent, so it is
    /// not part of a state.
    pub(super) fn worked(&self, held: Held) -> Mark {
        let lines = self.config.menu.iter().zip(0_u8..);
        let sent = lines.filter(|(_, line)| held.has_sent(*line));
        sent.map(|((_, act), _)| work_of(*act)).max().unwrap_or(0)
    }

    /// Drops leases under which no line was sent and none can be sent any more.
    pub(super) fn tidy(&self, state: &mut State) {
        let sends = u32::from(self.config.sends);
        for worker in 0..self.config.workers {
            if state.sent_by(worker) >= sends {
                state.held.retain(|held| held.sent != 0 || held.lease.worker != worker);
            }
        }
    }
}

/// Returns how far the sender of a message has worked.
const fn work_of(act: Act) -> Mark {
    match act {
        Act::Checkpoint(cursor) | Act::Complete(cursor) | Act::Offer { cursor, .. } => {
            cursor.mark()
        }
        Act::Renew
        | Act::Park(_)
        | Act::Replace { .. }
        | Act::Residual { .. }
        | Act::Release { .. }
        | Act::Withdraw { .. } => 0,
    }
}
