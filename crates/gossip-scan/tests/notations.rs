//! Tokens at their longest, and the notations in which people write passwords.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

use gossip_scan::{Finding, RuleSet, ScanOptions, Scanner};

const ALNUM: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random characters of an alphabet from a seed.
fn random(alphabet: &[u8], len: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet[(state >> 33) as usize % alphabet.len()])
    };
    (0..len).map(|_| next()).collect()
}

fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
    let groups = (bytes.len() * 8).div_ceil(6);
    let value = |group: usize| (0..6).fold(0, |it, low| (it << 1) | bit(group * 6 + low));
    (0..groups).map(|group| char::from(ALPHABET[usize::from(value(group))])).collect()
}

fn scan(path: &str, text: &str) -> Vec<Finding> {
    let scanner = Scanner::new(&RuleSet::built_in(), ScanOptions::default()).unwrap();
    let mut found = Vec::new();
    let mut scratch = scanner.scratch();
    scanner.scan_bytes(&mut scratch, path.as_bytes(), text.as_bytes(), |it| found.push(it));
    found
}

/// Checks which secrets of which rules a text has.
fn check(path: &str, text: &str, expected: &[(&str, &str)]) {
    let found = scan(path, text);
    let found: Vec<_> = found
        .iter()
        .map(|it| (&*it.rule, std::str::from_utf8(it.secret.expose()).unwrap()))
        .collect();
    assert_eq!(found, expected, "{path}: {text:.80}");
}

#[test]
fn tokens_of_several_kilobytes_are_found_whole() {
    for (rule, prefix, len) in [
        ("google-oauth-access", "ya29.", 2_043),
        ("google-oauth-refresh", "1//0", 508),
        ("fly-token", "fm2_", 3_000),
        ("aws-bedrock-key", "ABSK", 269),
        ("aws-bedrock-session-key", "bedrock-api-key-", 2_800),
        ("dropbox-token", "sl.", 3_000),
        ("stripe-webhook-secret", "whsec_", 100),
    ] {
        let token = format!("{prefix}{}", random(ALNUM, len, 7));
        check("a", &format!("x = '{token}'\n"), &[(rule, &token)]);
        // Cut off by a word that continues, it would be another secret.
        let far = format!("x = '{prefix}{}'\n", random(ALNUM, 20_000, 7));
        assert!(scan("a", &far).iter().all(|it| *it.rule != *rule), "{rule}");
    }
}

#[test]
fn a_token_with_many_claims_is_found_whole() {
    let groups: Vec<String> = (0..80).map(|it| random(b"0123456789abcdef", 36, it)).collect();
    let header = base64_url(b"{\"typ\":\"JWT\",\"alg\":\"RS256\",\"kid\":\"k\"}");
    let payload = base64_url(format!("{{\"exp\":1700000000,\"groups\":{groups:?}}}").as_bytes());
    assert!(payload.len() > 4_000);
    let signature = base64_url(random(ALNUM, 256, 1).as_bytes());
    let token = format!("{header}.{payload}.{signature}");
    check("a", &format!("access = {token}.\n"), &[("jwt", &token)]);
    check("a", &format!("{header}.{payload}.sig\n"), &[]);
    check("a", &format!("{header}.{payload}\n"), &[]);
}

#[test]
fn the_client_key_of_a_kubeconfig_is_found_whole() {
    let lines: Vec<String> = (0..50).map(|seed| random(ALNUM, 64, seed)).collect();
    let key = base64_url(lines.join(" ").as_bytes()).replace('-', "+").replace('_', "/");
    assert!(key.len() > 4_000);
    check("a", &format!("    client-key-data: {key}\n"), &[("kubeconfig-key", &key)]);
}

#[test]
fn tokens_in_less_common_spellings_are_found() {
    let hex = random(b"0123456789abcdef", 32, 3);
    let flutterwave = format!("FLWSECK-{hex}");
    check("a", &format!("k: {flutterwave}\n"), &[("flutterwave-key", &flutterwave)]);
    let yandex = format!("t1.{}.{}", random(ALNUM, 190, 4), random(ALNUM, 86, 5));
    check("a", &format!("k: {yandex}\n"), &[("yandex-iam-token", &yandex)]);
    let hash = format!("{{SHA}}{}=", random(ALNUM, 27, 6));
    check(".htpasswd", &format!("deploy:{hash}\n"), &[("sha1-password-hash", &hash)]);
}

#[test]
fn authorization_headers_are_found_in_any_case() {
    let token = format!("a1{}", random(ALNUM, 40, 1));
    let basic = base64_url(b"deploy:zx81vqhe4t");
    for (name, scheme) in
        [("Authorization", "Bearer"), ("authorization", "bearer"), ("AUTHORIZATION", "BEARER")]
    {
        let text = format!("{name}: {scheme} {token}\n");
        check("a", &text, &[("authorization-bearer", &token)]);
    }
    for scheme in ["Basic", "basic", "BASIC"] {
        let text = format!("\"Authorization\": \"{scheme} {basic}\"\n");
        check("a", &text, &[("authorization-basic", &basic)]);
    }
}

#[test]
fn pgpass_lines_of_any_usual_port_are_found() {
    for port in ["5432", "5433", "6432", "6543", "25060", "26257", "*"] {
        let text = format!("db.internal:{port}:app:deploy:zx81vqhe4t\n");
        check(".pgpass", &text, &[("pgpass-password", "zx81vqhe4t")]);
        check("notes", &text, &[]);
    }
    let text = "db.internal:*:*:deploy:zx\\:81vq\n";
    check("pgpass.conf", text, &[("pgpass-password", "zx\\:81vq")]);
}

#[test]
fn a_dollar_in_the_password_of_a_url_is_no_variable() {
    for password in ["zx$81vqhe4t", "zx81vq$", "$81vqhe4tzx", "zx$$vq81"] {
        let text = format!("postgres://app:{password}@db.internal/x\n");
        check("a", &text, &[("url-credentials", password)]);
    }
    for variable in ["$PASSWORD", "${PASSWORD}", "$(get pass)", "$db_password1", "zx${PASSWORD}"] {
        check("a", &format!("postgres://app:{variable}@db.internal/x\n"), &[]);
    }
}

#[test]
fn the_password_of_a_mysql_command_is_found() {
    let expected = [("mysql-password", "zx81vqhe4t")];
    for command in [
        "mysql -u deploy -pzx81vqhe4t app",
        "mysql -pzx81vqhe4t",
        "mysqldump --single-transaction -h db -pzx81vqhe4t app > x",
        "mysqladmin -uroot '-pzx81vqhe4t' status",
        "mariadb -p'zx81vqhe4t'",
    ] {
        check("a.sh", &format!("{command}\n"), &expected);
    }
    for command in [
        "mysql -u deploy -p app",
        "mysql -u deploy -p$PASSWORD",
        "mysql -u deploy -p\"$PASSWORD\"",
        "mysql -uroot -proot",
        "mysql --protocol=tcp -P 3306",
    ] {
        check("a.sh", &format!("{command}\n"), &[]);
    }
}

/// A document that declares a secret, before or behind its data.
fn manifest(kind_first: bool, lines: &str) -> String {
    let (kind, data) = ("kind: Secret\n", format!("data:\n{lines}"));
    let metadata = "metadata:\n  name: db\n";
    match kind_first {
        true => format!("apiVersion: v1\n{kind}{metadata}{data}"),
        false => format!("apiVersion: v1\n{data}{kind}{metadata}"),
    }
}

#[test]
fn a_kubernetes_secret_is_found_in_its_whole_document() {
    let value = base64_url(b"zx81vqhe4t-long");
    let other: String =
        (0..150).map(|it| format!("  key{it}: {}\n", random(b"!~%", 60, it))).collect();
    assert!(other.len() > 8_000);
    for kind_first in [true, false] {
        for lines in [format!("{other}  last: {value}\n"), format!("  first: {value}\n{other}")] {
            let text = manifest(kind_first, &lines);
            check("a", &text, &[("kubernetes-secret", &value)]);
            check("a", &text.replace("Secret", "ConfigMap"), &[]);
            // Another document.
            let text = manifest(kind_first, &other);
            check("a", &format!("a:\n  x: {value}\n---\n{text}---\nb:\n  y: {value}\n"), &[]);
        }
    }
}

#[test]
fn a_kubernetes_secret_in_json_is_found() {
    let value = base64_url(b"zx81vqhe4t-long");
    let expected = [("kubernetes-secret-json", &*value)];
    for text in [
        format!("{{\"apiVersion\":\"v1\",\"data\":{{\"k\":\"{value}\"}},\"kind\":\"Secret\"}}"),
        format!("{{\n  \"data\": {{\n    \"k\": \"{value}\"\n  }},\n  \"kind\": \"Secret\"\n}}"),
        format!(
            "last: |\n  {{\\\"kind\\\":\\\"Secret\\\",\\\"data\\\":{{\\\"k\\\":\\\"{value}\\\"}}}}"
        ),
    ] {
        check("a", &text, &expected);
        check("a", &text.replace("Secret", "ConfigMap"), &[]);
    }
}
