//! Findings: redaction, identities, gates, allowed and known findings.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

use gossip_contracts::identity::{
    FindingId, FindingIdInputs, SecretHash, StableItemId, TenantId, TenantSecretKey,
};
use gossip_scan::{
    AllowList, Baseline, BaselineError, Checksum, Confidence, Finding, RuleSet, ScanOptions,
    Scanner,
};

struct Bench {
    rules: RuleSet,
    scanner: Scanner,
}

impl Bench {
    fn new() -> Self {
        let rules = RuleSet::built_in();
        let scanner = Scanner::new(&rules, ScanOptions::default()).unwrap();
        Self { rules, scanner }
    }

    fn secret(&self, rule: &str, seed: u64) -> String {
        String::from_utf8(self.rules.rule(rule).unwrap().mint_secret(seed).unwrap()).unwrap()
    }

    fn scan(&self, path: &str, text: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut scratch = self.scanner.scratch();
        self.scanner
            .scan_bytes(&mut scratch, path.as_bytes(), text.as_bytes(), |it| found.push(it));
        found
    }

    /// Checks which rules find something.
    fn check(&self, path: &str, text: &str, rules: &[&str]) {
        let found = self.scan(path, text);
        let ids: Vec<&str> = found.iter().map(|it| &*it.rule).collect();
        assert_eq!(ids, rules, "{path}");
    }
}

#[test]
fn no_debug_text_contains_a_secret() {
    let bench = Bench::new();
    for rule in bench.rules.iter() {
        let text = String::from_utf8(rule.mint(9).unwrap()).unwrap();
        for finding in bench.scan("a", &text) {
            let secret = String::from_utf8(finding.secret.expose().to_vec()).unwrap();
            let shown = format!("{finding:?} {}", finding.secret.redacted());
            // The first four characters may be shown, and ids of rules resemble prefixes.
            for part in secret.as_bytes()[secret.len() / 2..].windows(8) {
                let part = std::str::from_utf8(part).unwrap();
                assert!(!shown.contains(part), "{}", rule.id);
            }
        }
    }
}

#[test]
fn a_finding_has_place_and_identity() {
    let bench = Bench::new();
    let secret = bench.secret("npm-token", 1);
    let found = bench.scan("a", &format!("first\n  {secret} {secret}\n"));
    let places: Vec<_> = found.iter().map(|it| (it.offset, it.line, it.column)).collect();
    assert_eq!(places, [(8, 2, 3), (49, 2, 44)]);
    assert_eq!((found[0].length, found[0].checksum), (40, Checksum::Valid));
    let id = |finding: &Finding, key: u8| {
        let key = TenantSecretKey::from_bytes([key; 32]);
        FindingId::derive(&FindingIdInputs {
            tenant: TenantId::from_bytes([1; 32]),
            item: StableItemId::from_bytes([2; 32]),
            rule: finding.fingerprint,
            secret: SecretHash::derive(&key, &finding.secret.norm_hash()),
        })
    };
    assert_eq!(id(&found[0], 3), id(&found[1], 3));
    assert_ne!(id(&found[0], 3), id(&found[0], 4));
}

#[test]
fn an_encoded_secret_has_the_place_of_its_encoding_and_the_same_hash() {
    let bench = Bench::new();
    let secret = bench.secret("npm-token", 1);
    let plain = bench.scan("a", &secret);
    let wide: String = secret.chars().flat_map(|it| [it, '\0']).collect();
    let found = bench.scan("a", &format!("a\0\n\0{wide}\n\0"));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].offset, found[0].length, found[0].decoded), (4, 80, 1));
    assert_eq!(found[0].secret.norm_hash(), plain[0].secret.norm_hash());
}

#[test]
fn overlapping_matches_give_one_finding() {
    let bench = Bench::new();
    let token = bench.secret("github-pat", 1);
    bench.check("a", &format!("api_token = \"{token}\"\n"), &["github-pat"]);
    // The worse match begins first.
    bench.check("a", &format!("api_token = \"v1:{token}\"\n"), &["github-pat"]);
    bench.check("a", &format!("https://bot:{token}@git.internal/x\n"), &["github-pat"]);
    let jwt = bench.secret("jwt", 1);
    bench.check("a", &format!("Authorization: Bearer {jwt}\n"), &["jwt"]);
}

#[test]
fn a_comment_on_the_line_accepts_its_findings_only() {
    let bench = Bench::new();
    let token = bench.secret("npm-token", 1);
    let text = format!("{token} # gossip:allow sample\n{token}\n");
    let mut lines = Vec::new();
    let mut scratch = bench.scanner.scratch();
    let report = bench.scanner.scan_bytes(&mut scratch, b"a", text.as_bytes(), |it| {
        lines.push((it.line, it.allowed));
    });
    assert_eq!((lines, report.allowed, report.findings), (vec![(1, true), (2, false)], 1, 2));
}

#[test]
fn a_comment_without_a_reason_accepts_nothing() {
    let bench = Bench::new();
    let token = bench.secret("npm-token", 1);
    for (text, allowed) in [
        (format!("/* gossip:allow: sample */ x = {token}\n"), true),
        (format!("<!-- gossip:allow échantillon --> {token}\n"), true),
        (format!("{token} # gossip:allow\n"), false),
        (format!("{token} # gossip:allow: -\nsample\n"), false),
        (format!("{token} /* gossip:allow */ sample\n"), false),
        (format!("<!-- gossip:allow --> {token}\n"), false),
    ] {
        assert_eq!(bench.scan("a", &text)[0].allowed, allowed, "{text}");
    }
}

#[test]
fn placeholders_are_not_reported() {
    let bench = Bench::new();
    for value in [
        "xxxxxxxxxxxxxxxxxxxxxxxx1",
        "your_api_key_goes_here_1",
        "${SECRET_FROM_ENV_1}abc",
        "{{ vault.secret1 }}abcd",
        "changeme-please-12",
        "com.vendor.product.v1.Handler",
        "some_identifier_name_v2",
        "/usr/share/keys/a1/b2/c3",
        "https://host.internal/path1?x=y",
        "compute(value, 17, other)",
        "correct horse battery 1 staple",
    ] {
        bench.check("a.rs", &format!("let password = \"{value}\";\n"), &[]);
    }
    for password in ["password", "secret", "pass1", "postgres"] {
        bench.check("a.rs", &format!("postgres://app:{password}@db/x"), &[]);
    }
}

#[test]
fn digests_and_ids_are_no_generic_secrets() {
    let bench = Bench::new();
    let hex = bench.secret("shippo-token", 1).replace("shippo_live_", "");
    bench.check("a.rs", &format!("token_digest = \"{hex}\"\n"), &[]);
    let uuid = bench.secret("snyk-token", 1);
    bench.check("a.rs", &format!("token_id = \"{uuid}\"\n"), &[]);
}

#[test]
fn assignments_of_many_notations_are_found() {
    let bench = Bench::new();
    let value = bench.secret("generic-assignment", 1);
    for text in [
        format!("db_password = \"{value}\""),
        format!("\"dbPassword\": \"{value}\","),
        format!("let token: &str = \"{value}\";"),
        format!("config['api_key'] = '{value}'"),
        format!("<password>{value}</password>"),
        format!("setSecret(\"{value}\")"),
        format!("export DB_PASSWORD={value}"),
        format!("  - API_TOKEN={value}"),
        format!("secret => '{value}'"),
        format!("{{\\\"password\\\": \\\"{value}\\\"}}"),
    ] {
        bench.check("a.rs", &format!("{text}\n"), &["generic-assignment"]);
    }
    // Without quotes, only configuration has values; elsewhere they are expressions.
    bench.check("a.rs", &format!("password = {value}\n"), &[]);
    bench.check("a.yaml", &format!("password: {value}\n"), &["generic-assignment"]);
}

#[test]
fn names_in_every_case_are_found() {
    let bench = Bench::new();
    let value = bench.secret("generic-assignment", 1);
    for name in [
        "apiKey",
        "ApiKey",
        "APIKey",
        "API_KEY",
        "api-key",
        "X-Api-Key",
        "stripe.api.key",
        "apikey",
        "accessKey",
        "AccessKey",
        "privateKey",
        "PRIVATE_KEY",
        "clientSecret",
        "ClientSecret",
        "accessToken",
        "authKey",
        "signingKey",
        "encryptionKey",
        "userPassword",
        "dbPassWord",
    ] {
        bench.check("a.js", &format!("{name}: \"{value}\"\n"), &["generic-assignment"]);
    }
    let secret = bench.secret("aws-secret-key", 1);
    for name in ["secretAccessKey", "SecretAccessKey", "awsSecretKey", "AWS_SECRET_ACCESS_KEY"] {
        bench.check("a.js", &format!("{name}: \"{secret}\"\n"), &["aws-secret-key"]);
    }
    let token = bench.secret("azure-devops-pat-legacy", 1);
    for name in ["azureDevOpsToken", "AZURE_DEVOPS_PAT", "azure_dev_ops", "azdoToken", "adoPat"] {
        bench.check("a.js", &format!("{name}: \"{token}\"\n"), &["azure-devops-pat-legacy"]);
    }
}

#[test]
fn a_guess_in_a_configuration_file_has_more_confidence() {
    let bench = Bench::new();
    let text = format!("password = \"{}\"\n", bench.secret("generic-assignment", 1));
    assert_eq!(bench.scan("a.rs", &text)[0].confidence, Confidence::Low);
    assert_eq!(bench.scan("a.toml", &text)[0].confidence, Confidence::Medium);
}

#[test]
fn a_failed_checksum_lowers_confidence_and_is_reported() {
    let bench = Bench::new();
    let mut token = bench.secret("npm-token", 1);
    let last = if token.ends_with('0') { "1" } else { "0" };
    token.replace_range(39.., last);
    let found = bench.scan("a", &token);
    assert_eq!((found[0].checksum, found[0].confidence), (Checksum::Fail, Confidence::Medium));
}

#[test]
fn details_are_read_from_tokens() {
    let bench = Bench::new();
    let found = bench.scan("a", &bench.secret("jwt", 1));
    assert_eq!(found[0].details[0].0, "exp");
    let ids = (0..40).map(|seed| bench.secret("aws-key-id-long-lived", seed));
    let accounts = ids.flat_map(|id| bench.scan("a", &id)).flat_map(|it| it.details);
    let accounts: Vec<_> = accounts.collect();
    assert!(accounts.len() > 5);
    assert!(accounts.iter().all(|it| it.0 == "aws_account" && it.1.len() == 12));
}

#[test]
fn an_aws_secret_beside_its_id_is_found_without_a_name() {
    let bench = Bench::new();
    let (id, secret) =
        (bench.secret("aws-key-id-long-lived", 1), bench.secret("aws-secret-key", 1));
    let text = format!("{id}\n\n{secret}\n");
    bench.check("a", &text, &["aws-key-id-long-lived", "aws-secret-key-paired"]);
    bench.check("a", &format!("{secret}\n"), &[]);
}

#[test]
fn decoded_text_is_searched_in_turn() {
    let bench = Bench::new();
    let docker = bench.secret("docker-auth", 1);
    let config = base64(format!("{{\"auths\": {{\"r\": {{{docker}}}}}}}").as_bytes());
    let found = bench.scan("a", &format!("kind: Secret\ndata:\n  config.json: {config}\n"));
    let summary: Vec<_> = found.iter().map(|it| (&*it.rule, it.decoded)).collect();
    assert_eq!(summary, [("docker-auth", 1)]);
    let token = bench.secret("npm-token", 1);
    let twice = base64(base64(format!(" {token}\n").as_bytes()).as_bytes());
    let text = format!("kind: Secret\ndata:\n  token: {twice}\n");
    let found = bench.scan("a", &text);
    let summary: Vec<_> = found.iter().map(|it| (&*it.rule, it.decoded)).collect();
    assert_eq!(summary, [("npm-token", 2)]);
    let start = usize::try_from(found[0].offset).unwrap();
    assert!(start > text.find(&twice).unwrap());
    assert_eq!(found[0].secret.expose(), token.as_bytes());
}

#[test]
fn text_full_of_encoded_anchors_is_decoded_within_a_budget() {
    let bench = Bench::new();
    // One run in which almost every group is a literal of a rule.
    let text = base64("npm_hf_".repeat(4_000).as_bytes());
    let mut scratch = bench.scanner.scratch();
    let report = bench.scanner.scan_bytes(&mut scratch, b"a", text.as_bytes(), drop);
    let reasons: Vec<_> = report.unread.iter().map(|it| it.reason.name()).collect();
    assert_eq!(reasons, ["decode-budget"]);
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bit = |at: usize| group.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
        for index in 0..4 {
            let value = (0..6).fold(0, |it, low| (it << 1) | bit(index * 6 + low));
            let is_padding = index > group.len();
            text.push(if is_padding { '=' } else { char::from(ALPHABET[usize::from(value)]) });
        }
    }
    text
}

#[test]
fn allow_lists_match_paths_and_rules() {
    let list = AllowList::parse(
        "[[allow]]\npath = \"tests/*.pem\"\nrule = \"private-key-pem\"\nreason = \"test keys\"\n\
         [[allow]]\npath = \"vendor/*\"\nreason = \"not ours\"\n",
    )
    .unwrap();
    let reason = |path: &str, rule| list.find(path.as_bytes(), rule).map(|it| &*it.reason);
    assert_eq!(reason("tests/a/b.pem", "private-key-pem"), Some("test keys"));
    assert_eq!(reason("tests/a/b.pem", "jwt"), None);
    assert_eq!(reason("vendor/x", "jwt"), Some("not ours"));
    assert_eq!(reason("src/vendor/x", "jwt"), None);
    for text in ["[[allow]]\nreason = \"all\"\n", "[[allow]]\npath = \"a\"\nreason = \"\"\n"] {
        assert!(AllowList::parse(text).is_err());
    }
}

#[test]
fn a_baseline_survives_its_text() {
    let ids = [FindingId::from_bytes([7; 32]), FindingId::from_bytes([1; 32])];
    let baseline = Baseline::new(ids);
    assert_eq!(Baseline::parse(&baseline.to_text()), Ok(baseline.clone()));
    assert!(baseline.contains(&ids[0]));
    assert!(!baseline.contains(&FindingId::from_bytes([9; 32])));
    assert_eq!(Baseline::parse("other\n"), Err(BaselineError::Header));
    assert_eq!(Baseline::parse("gossip-baseline 1\nxyz\n"), Err(BaselineError::Line { line: 2 }));
}

#[test]
fn context_words_can_be_left_out() {
    let bench = Bench::new();
    let mut options = ScanOptions::default();
    options.structured_only = true;
    let scanner = Scanner::new(&bench.rules, options).unwrap();
    let token = bench.secret("npm-token", 1);
    let value = bench.secret("generic-assignment", 1);
    let text = format!("password = \"{value}\" {token}\n");
    assert_eq!(scanner.scan_bytes(&mut scanner.scratch(), b"a", text.as_bytes(), drop).findings, 1);
}
