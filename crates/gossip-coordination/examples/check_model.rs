use gossip_coordination::model::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scale = if args.iter().any(|a| a == "--short") { Scale::Short } else { Scale::Campaign };
    let max = args.iter().find_map(|a| a.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let bug = args.iter().find_map(|a| Bug::ALL.into_iter().find(|b| format!("{b:?}") == *a));
    let strict = if args.iter().any(|a| a == "--effects") {
        Strictness::Effects
    } else {
        Strictness::Records
    };
    let bugs = args.iter().any(|a| a == "--bugs");
    if bugs {
        for bug in Bug::ALL {
            for config in configurations(scale) {
                let t = Instant::now();
                let r = search(config, Some(bug), strict, max);
                if let Some(f) = r.finding {
                    println!(
                        "{bug:?} {} {} states {:?} {:?}: {} ({} steps)",
                        config.name,
                        r.states,
                        t.elapsed(),
                        f.violation.rule,
                        f.violation.why,
                        f.trace.len()
                    );
                    break;
                }
                if config.name == "everything" {
                    println!("{bug:?} NOT FOUND");
                }
            }
        }
        return;
    }
    let mut all = std::collections::BTreeSet::new();
    for config in configurations(scale) {
        let names: Vec<_> = configurations(scale).iter().map(|c| c.name).collect();
        let chosen: Vec<_> = args.iter().filter(|a| names.contains(&a.as_str())).collect();
        if !chosen.is_empty() && !chosen.iter().any(|a| *a == config.name) {
            continue;
        }
        let t = Instant::now();
        let r = search(config, bug, strict, max);
        println!(
            "{:12} {:>9} states {:>11} moves depth {:>3} exhausted {} {:?} sizes {:?}",
            r.name,
            r.states,
            r.moves,
            r.depth,
            r.exhausted,
            t.elapsed(),
            r.sizes
        );
        if let Some(f) = &r.finding {
            println!("{:?}", f.violation);
            for l in &f.trace {
                println!("   {l}");
            }
        }
        all.extend(r.reached);
    }
    let c = coverage(&all);
    println!("expected {} missing {:?} surprising {:?}", c.expected.len(), c.missing, c.surprising);
}
