//! `sim`: bad days of many workers, played again from a seed. The same room as `cargo xtask sim`.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use gossip_coordination::sim::Simulator;
use gossip_coordination::sim::command::{self, Options, USAGE, Verdict};

use crate::args::{Format, Global, SimArgs};
use crate::failure::{Code, Failure};
use crate::output::{self, Record};

pub(crate) fn run(global: &Global, args: &SimArgs) -> Result<Code, Failure> {
    let options = Options::parse(&args.words()).ok_or_else(|| {
        Failure::new(Code::Usage, "what the simulator is to do is not understood").next(USAGE)
    })?;
    match global.output {
        Format::Table => tell(&options),
        Format::Json | Format::Jsonl => record(global.output, &options),
    }
}

/// Writes what comes of it while it comes.
fn tell(options: &Options) -> Result<Code, Failure> {
    let mut stdout = io::stdout().lock();
    match play(options, &mut stdout).and_then(|played| stdout.flush().map(|()| played)) {
        Ok((verdict, _)) => Ok(code(verdict)),
        // Whoever read has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Code::Complete),
        Err(error) => {
            Err(Failure::new(Code::Internal, "standard output cannot be written").why(error))
        }
    }
}

/// Writes one value when it is over.
fn record(format: Format, options: &Options) -> Result<Code, Failure> {
    let mut report = Vec::new();
    let (verdict, time) =
        play(options, &mut report).expect("memory takes whatever is written to it");
    let seeds = options.seeds();
    let verdict_word = match verdict {
        Verdict::Held => "held",
        Verdict::Broken => "broken",
    };
    let played = Record::new()
        .with("verdict", verdict_word)
        .with("first_seed", seeds.start)
        .with("seeds", seeds.end - seeds.start)
        .with("bugs", options.bugs)
        .with("elapsed_ms", u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        .with("report", String::from_utf8_lossy(&report).into_owned());
    output::one(format, &played)?;
    Ok(code(verdict))
}

fn play(options: &Options, out: &mut dyn io::Write) -> io::Result<(Verdict, Duration)> {
    let begun = Instant::now();
    let simulator = Simulator::new().behind("gossip sim");
    let verdict = command::run_behind(&simulator, options, &|| begun.elapsed(), out)?;
    Ok((verdict, begun.elapsed()))
}

const fn code(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Held => Code::Complete,
        Verdict::Broken => Code::Internal,
    }
}
