//! Pairs of worlds: two tenants, and the first of them alone.
//!
//! What one tenant is answered must not depend on another. A pair plays one world twice, with the
//! second tenant and without, and compares a digest of everything that the first was answered. The
//! oracle judges both as it judges any world.
//!
//! Tenants share no key (DESIGN Q31). What they share is the server, so in a pair
//! ([`Plan::paired_until`])
//! - the store loses its leader, which is everybody's, when the dice of the first tenant say so;
//! - nobody asks about another tenant on purpose.
//!
//! All else is as in other worlds: flights of both tenants are interleaved wherever they wait.

use std::io::{self, Write};
use std::rc::Rc;

use super::faults::{FaultKind, FaultSet, FaultTally};
use super::plan::Plan;
use super::report::{Failure, Report, grouped};
use super::world::World;
use super::{FINGERPRINT, Simulator};

/// Ticks of each world of a pair: a few runs of each tenant, from their birth to their end.
const PAIR_TICKS: u64 = 6_000;

/// Lines of a trace that are written: the end is what matters.
const TRACE_LINES_MAX: usize = 200;

/// A world of two tenants, and the same with the first alone.
#[must_use]
pub fn pair(seed: u64) -> [Plan; 2] {
    let usual = Plan::of_seed(seed, u64::MAX, Some(pair_faults()));
    let both = Plan { tenants: 2, paired_until: Some(PAIR_TICKS), ..usual };
    let alone = Plan { alone: Some(0), ..both.clone() };
    [both, alone]
}

/// What goes wrong in a pair: all kinds but one that shows a tenant the record of another, and one
/// after which nobody is held to any rule.
fn pair_faults() -> FaultSet {
    FaultSet::usual().without(FaultKind::WrongKeyRead)
}

/// Whether `kind` may happen in a pair to a process of the first tenant, or of another.
pub(super) const fn may_happen(kind: FaultKind, of_first: bool) -> bool {
    let is_everybodys = matches!(kind, FaultKind::LeaderChange);
    !is_everybodys || of_first
}

/// How the operations of a world's first tenant and of the others took turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Operations of the first tenant.
    pub first: u64,
    /// Operations of others that ended between two of those.
    pub between: u64,
    /// Operations of others since the last of those.
    since: u64,
}

impl Turns {
    /// An operation of `tenant` has ended.
    pub(super) const fn count(&mut self, tenant: u32) {
        if tenant > 0 {
            self.since += 1;
            return;
        }
        if self.first > 0 {
            self.between += self.since;
        }
        self.first += 1;
        self.since = 0;
    }
}

/// What pairs came to.
#[derive(Clone, Debug, Default)]
pub struct PairReport {
    /// Pairs in which the first tenant was answered the same.
    pub pairs: u64,
    /// Operations of the first tenant, each of them in both worlds of its pair.
    pub first: u64,
    /// Operations of the other that ended between two of those.
    pub between: u64,
    /// Operations of all worlds that were held to every rule.
    pub judged: u64,
    /// Faults of the worlds with both tenants.
    pub faults: FaultTally,
}

impl PairReport {
    /// Adds what others came to.
    pub fn add(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.first += other.first;
        self.between += other.between;
        self.judged += other.judged;
        self.faults.add(&other.faults);
    }

    /// Writes the figures as Markdown; `wrong` pairs are not among those that were added.
    ///
    /// # Errors
    ///
    /// Of the writer.
    pub fn write(&self, wrong: u64, out: &mut dyn Write) -> io::Result<()> {
        let of_kind = FaultKind::ALL.iter().map(|kind| self.faults.of(*kind));
        let (faults, kinds) =
            of_kind.fold((0, 0), |(sum, kinds), count| (sum + count, kinds + u64::from(count > 0)));
        let all = FaultKind::ALL.len() as u64;
        writeln!(out, "## Pairs\n\n| what | figure |\n|---|---|")?;
        let rows = [
            ("pairs of worlds", self.pairs + wrong),
            ("differences, broken rules and neighbours that did nothing", wrong),
            ("operations of the first tenant, the same with and without the other", self.first),
            ("operations of the other that ended between two of those", self.between),
            ("operations of all worlds that were held to every rule", self.judged),
            ("faults in the worlds of two tenants", faults),
        ];
        for (what, figure) in rows {
            writeln!(out, "| {what} | {} |", grouped(figure))?;
        }
        writeln!(out, "| kinds of faults among them, of all | {kinds} of {all} |\n")
    }
}

/// A pair that is not as it must be.
#[derive(Debug)]
pub struct PairFailure {
    /// The seed of the pair.
    pub seed: u64,
    /// What is wrong.
    pub why: PairWrong,
}

/// What is wrong with a pair.
#[derive(Debug)]
#[non_exhaustive]
pub enum PairWrong {
    /// One of the worlds breaks a rule.
    Broken(Box<(Plan, Failure)>),
    /// The first tenant is answered differently without the other.
    Differs,
    /// The other did nothing between two operations of the first, so nothing was compared.
    Idle,
}

impl Simulator {
    /// Plays both worlds of a pair and compares what the first tenant was answered.
    ///
    /// # Errors
    ///
    /// What is wrong with the pair.
    pub fn run_pair(&self, seed: u64) -> Result<PairReport, PairFailure> {
        let failed = |why| PairFailure { seed, why };
        let run = |plan: Plan| {
            let simulated = self.run(&plan);
            simulated.map_err(|failure| failed(PairWrong::Broken(Box::new((plan, failure)))))
        };
        let [both, alone] = pair(seed);
        let (both, alone) = (run(both)?, run(alone)?);
        let result = |report: &Report| (report.turns.first, report.tenant_hashes[0]);
        if result(&both) != result(&alone) {
            return Err(failed(PairWrong::Differs));
        }
        if both.turns.between == 0 {
            return Err(failed(PairWrong::Idle));
        }
        Ok(PairReport {
            pairs: 1,
            first: both.turns.first,
            between: both.turns.between,
            judged: both.judged() + alone.judged(),
            faults: both.faults,
        })
    }

    /// Writes what is wrong with a pair; the last line is the command that plays it again.
    ///
    /// # Errors
    ///
    /// Of the writer.
    pub fn tell_pair(&self, failure: &PairFailure, out: &mut dyn Write) -> io::Result<()> {
        let seed = failure.seed;
        match &failure.why {
            PairWrong::Broken(broken) => {
                let (plan, failure) = &**broken;
                let (which, violation) =
                    (plan.alone.map_or("both", |_| "alone"), &failure.violation);
                writeln!(out, "seed {seed}, {which}: {:?}: {}", violation.rule, violation.why)?;
                for line in self.end_of_trace(plan) {
                    writeln!(out, "{line}")?;
                }
            }
            PairWrong::Differs => {
                writeln!(out, "seed {seed}: the first tenant is answered differently")?;
                let [both, alone] = pair(seed).map(|plan| self.answers_of_first(plan));
                let place = both.iter().zip(&alone).take_while(|(one, other)| one == other).count();
                let line = |of: &[String]| of.get(place).cloned().unwrap_or_default();
                writeln!(out, "with the other: {}\nalone: {}", line(&both), line(&alone))?;
            }
            PairWrong::Idle => writeln!(out, "seed {seed}: the other tenant did nothing")?,
        }
        // Only a build that plays worlds alike plays this one again.
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "gossip-coordination {version}, golden world {FINGERPRINT:016x}:")?;
        writeln!(out, "{} --pairs 1 --seed {seed}", self.command)
    }

    fn end_of_trace(&self, plan: &Plan) -> Vec<String> {
        let traced = self.run(&Plan { trace: true, ..plan.clone() });
        let mut trace = traced.err().map(|failure| failure.trace).unwrap_or_default();
        trace.split_off(trace.len().saturating_sub(TRACE_LINES_MAX))
    }

    /// What the first tenant was answered and when, without the numbers of its operations: those
    /// count the other's too.
    fn answers_of_first(&self, plan: Plan) -> Vec<String> {
        let world = World::new(Plan { trace: true, ..plan }, Rc::clone(&self.keys), None);
        let firsts = world.processes.iter().filter(|process| process.tenant == 0).count();
        let shared = Rc::clone(&world.shared);
        let trace = match world.run() {
            Ok(_) => shared.borrow_mut().trace.take().unwrap_or_default(),
            Err(failure) => failure.trace,
        };
        trace.iter().filter_map(|line| answer_of(line, firsts)).collect()
    }
}

/// The answer in a line of a trace, if it is one of the first processes.
fn answer_of(line: &str, processes: usize) -> Option<String> {
    let mut words = line.split_whitespace();
    let (at, process) = (words.next()?, words.next()?.strip_prefix('p')?);
    let of_first = process.parse::<usize>().is_ok_and(|number| number < processes);
    let op = words.next()? == "op" && words.next().is_some();
    let result: Vec<&str> = words.collect();
    let is_answer = result.iter().any(|word| matches!(*word, "answer" | "returned"));
    (of_first && op && is_answer).then(|| format!("{at} p{process} {}", result.join(" ")))
}
