//! Breadth-first search of all reachable states.
//!
//! A state is identified by a 128-bit fingerprint; for ten million states the probability of a
//! collision is below 10⁻²⁴. States wait in a queue until each has been expanded; the search is
//! exhaustive exactly when the queue is empty. The search does not depend on time, threads or
//! randomness: the same configuration gives the same counts every time.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;

use foldhash::{fast, quality};
use hashbrown::HashSet;

use super::check::Strictness;
use super::configurations::Config;
use super::oracle::Violation;
use super::state::{Move, State};
use super::vocabulary::Op;
use super::world::World;

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the configuration.
    pub name: &'static str,
    /// Distinct states.
    pub states: usize,
    /// Tried moves, including those that changed nothing.
    pub moves: u64,
    /// Maximum over all states of the shortest path to it.
    pub depth: u32,
    /// Whether every state was expanded.
    pub exhausted: bool,
    /// Distinct records, distinct run values, and distinct questions to the kernel.
    pub sizes: (usize, usize, usize),
    /// Operations and outcomes that were reached.
    pub reached: BTreeSet<(Op, String)>,
    /// The first broken rule, if any.
    pub finding: Option<Finding>,
}

/// A broken rule, and the shortest path to it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub violation: Violation,
    /// The moves in order; the last one broke the rule.
    pub trace: Vec<String>,
}

/// Searches `config` until the queue is empty, a rule is broken, or `states_max` states were found.
#[must_use]
pub fn search(config: Config, strictness: Strictness, states_max: usize) -> Report {
    let mut search = Search {
        world: World::new(config),
        seen: HashSet::default(),
        ways: Vec::new(),
        queue: VecDeque::new(),
        buffer: Vec::new(),
        strictness,
        moves: 0,
        depth: 0,
    };
    let finding = search.run(states_max).err().map(|found| *found);
    let exhausted = finding.is_none() && search.queue.is_empty();
    Report {
        name: config.name,
        states: search.seen.len(),
        moves: search.moves,
        depth: search.depth,
        exhausted,
        sizes: search.world.kernel.sizes(),
        reached: search.world.kernel.reached(),
        finding,
    }
}

struct Search {
    world: World,
    seen: HashSet<u128, fast::FixedState>,
    /// The predecessor of each state and the move from there; the first state leads to itself.
    ways: Vec<(u32, Move)>,
    queue: VecDeque<Waiting>,
    buffer: Vec<u8>,
    strictness: Strictness,
    moves: u64,
    depth: u32,
}

/// A state that was not expanded yet.
struct Waiting {
    state: State,
    number: u32,
    depth: u32,
}

impl Search {
    fn run(&mut self, states_max: usize) -> Result<(), Box<Finding>> {
        let first = self.world.first();
        let first = first.map_err(|violation| self.finding(violation, None))?;
        self.meet(first, 0, Move::Tick, 0)?;
        while let Some(waiting) = self.queue.pop_front() {
            if self.seen.len() >= states_max {
                self.queue.push_front(waiting);
                return Ok(());
            }
            self.expand(&waiting)?;
        }
        Ok(())
    }

    fn expand(&mut self, waiting: &Waiting) -> Result<(), Box<Finding>> {
        for step in self.world.moves(&waiting.state) {
            self.moves += 1;
            match self.world.apply(&waiting.state, step) {
                Ok(None) => {}
                Ok(Some(next)) => self.meet(next, waiting.number, step, waiting.depth + 1)?,
                Err(violation) => {
                    return Err(self.finding(violation, Some((waiting.number, step))));
                }
            }
        }
        Ok(())
    }

    /// Checks a new state and adds it to the queue.
    fn meet(
        &mut self,
        state: State,
        before: u32,
        step: Move,
        depth: u32,
    ) -> Result<(), Box<Finding>> {
        if !self.seen.insert(fingerprint(&state, &mut self.buffer)) {
            return Ok(());
        }
        let number =
            u32::try_from(self.ways.len()).expect("memory is exhausted before numbers are");
        self.ways.push((before, step));
        if let Err(violation) = self.world.check(&state, self.strictness) {
            return Err(self.finding(violation, Some((before, step))));
        }
        self.depth = self.depth.max(depth);
        self.queue.push_back(Waiting { state, number, depth });
        Ok(())
    }

    fn finding(&self, violation: Violation, last: Option<(u32, Move)>) -> Box<Finding> {
        let mut trace: Vec<String> = Vec::new();
        let mut at = last;
        while let Some((before, step)) = at {
            trace.push(self.describe(step));
            at = (before != 0).then(|| self.ways[before as usize]);
        }
        trace.reverse();
        Box::new(Finding { violation, trace })
    }

    fn describe(&self, step: Move) -> String {
        match step {
            Move::Tick => "time passes".to_owned(),
            Move::Send { held, line } => {
                let (_, act) = self.world.config.menu[usize::from(line)];
                format!("the holder of lease {held} sends {act:?}")
            }
            Move::Deliver { command, at, .. } => {
                format!("at {at}, {:?}", self.world.kernel.commands.get(command))
            }
        }
    }
}

/// Returns two independent hashes of the state's canonical bytes.
fn fingerprint(state: &State, buffer: &mut Vec<u8>) -> u128 {
    const SEEDS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344];
    buffer.clear();
    state.write(buffer);
    let [low, high] = SEEDS.map(|seed| quality::FixedState::with_seed(seed).hash_one(&*buffer));
    u128::from(high) << u64::BITS | u128::from(low)
}
