//! The parts of the workspace that are mutated, and the tests that must catch their mutants.

/// A part of the workspace.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// The word of `--area`.
    pub name: &'static str,
    /// Beginnings of the paths of its files. A file of several areas belongs to the first.
    pub files: &'static [&'static str],
    /// Beginnings of paths below them that are not in the area.
    pub except: &'static [&'static str],
    /// Programs of tests, cheap ones first.
    pub programs: &'static [Program],
    /// Mutants that are drawn; absent if all are run.
    pub sample: Option<usize>,
    /// The share that must be caught, in percent of those that ended and change something.
    pub goal: u32,
}

/// A program of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the package, which is the name of its directory.
    pub package: &'static str,
    /// The integration test; absent for the unit tests of the library.
    pub test: Option<&'static str>,
    /// Words for the program: filters, or `--skip` and a filter.
    pub words: &'static [&'static str],
}

impl Area {
    pub(crate) fn contains(&self, file: &str) -> bool {
        let begins = |prefix: &&str| file.starts_with(*prefix);
        self.files.iter().any(begins) && !self.except.iter().any(begins)
    }
}

impl Program {
    const fn unit(package: &'static str, words: &'static [&'static str]) -> Self {
        Self { package, test: None, words }
    }
}

/// Rules and records without a store: under a second.
const KERNEL_TESTS: Program = Program::unit("gossip-coordination", &["--skip", "store::"]);

/// Scripts and suites on the in-memory coordinator.
const MEMORY_SUITES: Program =
    Program::unit("gossip-conformance", &["conformance_tests", "testscript::golden_tests"]);

/// Every suite: scripts, random sequences, stores that lose requests and replies.
const ALL_SUITES: Program = Program::unit("gossip-conformance", &[]);

/// The store layer without its slow tests.
const STORE_TESTS: Program =
    Program::unit("gossip-coordination", &["store::", "--skip", "race", "--skip", "claim_stats"]);

/// Races and claims from large runs.
const SLOW_STORE_TESTS: Program = Program::unit("gossip-coordination", &["race", "claim_stats"]);

/// Records and keys as bytes.
const CODEC_TESTS: Program = Program::unit(
    "gossip-coordination",
    &["store::codec", "store::key", "store::format", "store::older", "store::damage"],
);

/// Every area, in the order of the table.
pub const AREAS: &[Area] = &[
    Area {
        name: "kernel",
        files: &[
            "crates/gossip-coordination/src/protocol/",
            "crates/gossip-coordination/src/validation.rs",
            "crates/gossip-coordination/src/split_execution.rs",
            "crates/gossip-coordination/src/shard_limits.rs",
        ],
        except: &[],
        programs: &[KERNEL_TESTS, MEMORY_SUITES, STORE_TESTS, ALL_SUITES],
        sample: None,
        goal: 95,
    },
    Area {
        name: "codec",
        files: &[
            "crates/gossip-coordination/src/store/codec/",
            "crates/gossip-coordination/src/store/key.rs",
            "crates/gossip-frontier/src/key_encoding",
        ],
        except: &[],
        programs: &[
            CODEC_TESTS,
            Program::unit("gossip-frontier", &[]),
            STORE_TESTS,
            KERNEL_TESTS,
            ALL_SUITES,
        ],
        sample: Some(80),
        goal: 90,
    },
    Area {
        name: "store",
        files: &["crates/gossip-coordination/src/store/"],
        except: &[
            "crates/gossip-coordination/src/store/codec/",
            "crates/gossip-coordination/src/store/key.rs",
        ],
        programs: &[STORE_TESTS, KERNEL_TESTS, SLOW_STORE_TESTS, ALL_SUITES],
        sample: Some(80),
        goal: 90,
    },
    Area {
        name: "sqlite",
        files: &["crates/gossip-coordination-sqlite/src/"],
        except: &[],
        programs: &[
            Program::unit(
                "gossip-coordination-sqlite",
                &["--skip", "conformance_tests", "--skip", "shuttle_tests"],
            ),
            Program::unit("gossip-coordination-sqlite", &["shuttle_tests", "conformance_tests"]),
        ],
        sample: Some(80),
        goal: 90,
    },
    Area {
        name: "etcd",
        files: &["crates/gossip-coordination-etcd/src/"],
        except: &[],
        programs: &[Program::unit("gossip-coordination-etcd", &[]), ETCD_MODEL, ETCD_SERVERS],
        sample: Some(80),
        goal: 90,
    },
    Area {
        name: "task",
        files: &["crates/gossip-scanner-runtime/src/task/"],
        except: &[],
        programs: &[
            Program::unit("gossip-scanner-runtime", &["task::"]),
            Program::unit("gossip-scanner-runtime", &["worker::"]),
        ],
        sample: Some(80),
        goal: 90,
    },
];

/// Tests on the model of etcd, which start no server.
const ETCD_MODEL: Program = Program {
    package: "gossip-coordination-etcd",
    test: Some("it"),
    words: &[
        "sim_coordinator_tests",
        "refusal_tests",
        "unpolled_future_tests",
        "model",
        // Minutes on two cores, and real servers answer the same.
        "--skip",
        "golden_scripts",
        "--skip",
        "thousand",
    ],
};

/// Tests on real servers that take seconds.
const ETCD_SERVERS: Program = Program {
    package: "gossip-coordination-etcd",
    test: Some("it"),
    words: &[
        "backend_tests",
        "groups_tests",
        "grpc_tests",
        "owner_lease",
        "store_tests",
        "tls_tests",
    ],
};
