//! What programs ask of the system: counts, which a busy machine does not change.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use super::{Bench, trees};
use crate::Outcome;

/// The system calls that are counted, and what they are for.
const TREE_CALLS: &str = "openat,open,newfstatat,statx,getdents64,close,execve";

pub(super) fn table(bench: &Bench) -> Outcome<String> {
    let mut table = "| job | count |\n|---|---|\n".to_owned();
    let traced = trace(bench, "fsync,fdatasync", &["range:0..1", "--", "true"])?;
    let syncs = traced.lines().filter(|line| is_call(line, "fsync") || is_call(line, "fdatasync"));
    writeln!(table, "| one command, new store | {} syncs |", syncs.count())?;
    let files = bench.scaled(trees::FILES);
    for options in ["-j2", "-j8", "-j2 --shards 256"] {
        let words: Vec<&str> = ["flat", "-b1000"]
            .into_iter()
            .chain(options.split(' '))
            .chain(["--", "true"])
            .collect();
        let traced = trace(bench, TREE_CALLS, &words)?;
        let count = |name: &str| traced.lines().filter(|line| is_call(line, name)).count();
        let is_reading = |line: &&str| is_call(line, "openat") && line.contains("/flat/\", ");
        let reads = traced.lines().filter(is_reading).count();
        let looks = count("newfstatat") + count("statx");
        let opens = count("openat") + count("open");
        let [looks, opens] = [looks, opens].map(|calls| calls as f64 / files as f64);
        let line =
            format!("{reads} reads of the directory, {looks:.3} looks and {opens:.3} opens a file");
        writeln!(table, "| {files} files, flat, `{options} -b1000` | {line} |")?;
    }
    Ok(table.trim_end().to_owned())
}

/// Returns the system calls of these kinds that `gossip exec` makes on a new store, one a line.
fn trace(bench: &Bench, calls: &str, words: &[&str]) -> Outcome<String> {
    let (command, log) = (bench.exec(words)?, bench.directory.join("trace"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", &format!("trace={calls}"), "-o"]).arg(&log);
    strace.arg(command.get_program()).args(command.get_args()).current_dir(&bench.directory);
    crate::process::output_of(&mut strace)?;
    Ok(fs::read_to_string(log)?)
}

/// Returns whether a line of strace is the begin of a call.
fn is_call(line: &str, name: &str) -> bool {
    line.split_once(' ').is_some_and(|(_, rest)| {
        rest.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
    })
}

/// Returns how many requests of keys and leases an etcd server has received.
pub(super) fn etcd_requests(port: u16) -> Outcome<f64> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    let counted = text.lines().filter(|line| {
        let is_ours = line.contains("etcdserverpb.KV") || line.contains("etcdserverpb.Lease");
        line.starts_with("grpc_server_msg_received_total{") && is_ours
    });
    let number = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    Ok(counted.filter_map(number).sum())
}
