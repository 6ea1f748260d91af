//! Pairs of simulations: two tenants, and the first of them alone.
//!
//! The results of one tenant must not depend on another. A pair runs one simulation twice, with and
//! without the second tenant, and compares a digest of all results of the first. The oracle checks
//! both as usual.
//!
//! Tenants share no key (DESIGN Q31). They share the server, so in a pair ([`Plan::paired_until`])
//! - the store loses its leader, which concerns all tenants, only when the dice of the first tenant
//!   say so;
//! - workers do not send operations to other tenants on purpose.
//!
//! Everything else is as in other simulations: flights of both tenants are interleaved wherever
//! they wait.

use std::io::{self, Write};
use std::rc::Rc;

use super::faults::{FaultKind, FaultSet, FaultTally};
use super::plan::Plan;
use super::report::{Failure, Report, grouped};
use super::world::World;
use super::{FINGERPRINT, Simulator};

/// Ticks of each simulation of a pair: a few runs of each tenant from creation to deletion.
const PAIR_TICKS: u64 = 6_000;

/// Maximum number of trace lines that are printed: the last ones matter.
const TRACE_LINES_MAX: usize = 200;

/// Returns the plan of two tenants, and the same with the first alone.
#[must_use]
pub fn pair(seed: u64) -> [Plan; 2] {
    let usual = Plan::of_seed(seed, u64::MAX, Some(pair_faults()));
    let both = Plan { tenants: 2, paired_until: Some(PAIR_TICKS), ..usual };
    let alone = Plan { alone: Some(0), ..both.clone() };
    [both, alone]
}

/// Returns the faults of a pair: all kinds except one that returns the record of another tenant,
/// and one that suspends every rule.
fn pair_faults() -> FaultSet {
    FaultSet::usual().without(FaultKind::WrongKeyRead)
}

/// Returns whether `kind` may be injected in a pair, for a process of the first tenant or of
/// another.
pub(super) const fn may_happen(kind: FaultKind, of_first: bool) -> bool {
    let is_everybodys = matches!(kind, FaultKind::LeaderChange);
    !is_everybodys || of_first
}

/// How the operations of the first tenant and of the others were interleaved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Operations of the first tenant.
    pub first: u64,
    /// Operations of others that finished between two of those.
    pub between: u64,
    /// Operations of others since the last of those.
    since: u64,
}

impl Turns {
    /// Counts a finished operation of `tenant`.
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

/// Totals of pairs.
#[derive(Clone, Debug, Default)]
pub struct PairReport {
    /// Pairs in which the first tenant got the same results.
    pub pairs: u64,
    /// Operations of the first tenant, each in both simulations of its pair.
    pub first: u64,
    /// Operations of the other that finished between two of those.
    pub between: u64,
    /// Operations of all simulations that were checked against every rule.
    pub judged: u64,
    /// Faults of the simulations with both tenants.
    pub faults: FaultTally,
}

impl PairReport {
    /// Adds other totals.
    pub fn add(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.first += other.first;
        self.between += other.between;
        self.judged += other.judged;
        self.faults.add(&other.faults);
    }

    /// Writes the figures as Markdown; `wrong` pairs are not included in the totals.
    ///
    /// # Errors
    ///
    /// Returns an error of the writer.
    pub fn write(&self, wrong: u64, out: &mut dyn Write) -> io::Result<()> {
        let of_kind = FaultKind::ALL.iter().map(|kind| self.faults.of(*kind));
        let (faults, kinds) =
            of_kind.fold((0, 0), |(sum, kinds), count| (sum + count, kinds + u64::from(count > 0)));
        let all = FaultKind::ALL.len() as u64;
        writeln!(out, "## Pairs\n\n| what | figure |\n|---|---|")?;
        let rows = [
            ("pairs of simulations", self.pairs + wrong),
            ("failed pairs: different results, broken rules or an idle second tenant", wrong),
            ("operations of the first tenant, the same with and without the other", self.first),
            ("operations of the other that finished between two of those", self.between),
            ("operations of all simulations that were checked against every rule", self.judged),
            ("faults in the simulations of two tenants", faults),
        ];
        for (what, figure) in rows {
            writeln!(out, "| {what} | {} |", grouped(figure))?;
        }
        writeln!(out, "| kinds of faults among them | {kinds} of {all} |\n")
    }
}

/// A pair that failed.
#[derive(Debug)]
pub struct PairFailure {
    /// The seed of the pair.
    pub seed: u64,
    /// The failure.
    pub why: PairWrong,
}

/// How a pair failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PairWrong {
    /// One of the simulations breaks a rule.
    Broken(Box<(Plan, Failure)>),
    /// The first tenant gets different results without the other.
    Differs,
    /// The other tenant finished no operation between two of the first, so the comparison proves
    /// nothing.
    Idle,
}

impl Simulator {
    /// Runs both simulations of a pair and compares the results of the first tenant.
    ///
    /// # Errors
    ///
    /// Returns the failure of the pair.
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

    /// Writes the failure of a pair; the last line is the command that reproduces it.
    ///
    /// # Errors
    ///
    /// Returns an error of the writer.
    pub fn write_pair_failure(&self, failure: &PairFailure, out: &mut dyn Write) -> io::Result<()> {
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
                writeln!(out, "seed {seed}: the first tenant got different results")?;
                let [both, alone] = pair(seed).map(|plan| self.answers_of_first(plan));
                let place = both.iter().zip(&alone).take_while(|(one, other)| one == other).count();
                let line = |of: &[String]| of.get(place).cloned().unwrap_or_default();
                writeln!(out, "with the other: {}\nalone: {}", line(&both), line(&alone))?;
            }
            PairWrong::Idle => writeln!(out, "seed {seed}: the other tenant did nothing")?,
        }
        // Only a build with the same fingerprint reproduces the simulation.
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "gossip-coordination {version}, fingerprint {FINGERPRINT:016x}:")?;
        writeln!(out, "{} --pairs 1 --seed {seed}", self.command)
    }

    fn end_of_trace(&self, plan: &Plan) -> Vec<String> {
        let traced = self.run(&Plan { trace: true, ..plan.clone() });
        let mut trace = traced.err().map(|failure| failure.trace).unwrap_or_default();
        trace.split_off(trace.len().saturating_sub(TRACE_LINES_MAX))
    }

    /// Returns the results of the first tenant with their times, without operation numbers, which
    /// count the other tenant's operations, too.
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

/// Returns the result in a trace line, if it belongs to one of the first processes.
fn answer_of(line: &str, processes: usize) -> Option<String> {
    let mut words = line.split_whitespace();
    let (at, process) = (words.next()?, words.next()?.strip_prefix('p')?);
    let of_first = process.parse::<usize>().is_ok_and(|number| number < processes);
    let op = words.next()? == "op" && words.next().is_some();
    let result: Vec<&str> = words.collect();
    let is_answer = result.iter().any(|word| matches!(*word, "answer" | "returned"));
    (of_first && op && is_answer).then(|| format!("{at} p{process} {}", result.join(" ")))
}
