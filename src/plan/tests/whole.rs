//! What loading promises whatever the plan: hostile texts, variables, `--set`, rubrics, the model.

use super::*;
use crate::findings::{Finding, Severity};

const SMALL: &str = include_str!("../../../fixtures/plans/good/small.yaml");
const FULL: &str = include_str!("../../../fixtures/plans/good/full.yaml");

/// What `findings_of` says, without positions and source lines.
fn messages(text: &str) -> Vec<String> {
    load("p.yaml", text, &options()).findings.into_iter().map(|finding| finding.message).collect()
}

fn set(text: &str, arguments: &[&str]) -> Loaded {
    let set = arguments.iter().map(|s| (*s).to_owned()).collect();
    load("p.yaml", text, &Options { set, ..options() })
}

#[test]
fn a_good_plan_is_read_in_full() {
    let loaded = load("p.yaml", FULL, &options());
    let plan = loaded.plan.unwrap();
    assert_eq!(plan.period, "2026-Q1");
    let small = load("p.yaml", SMALL, &options()).plan.unwrap();
    assert_eq!((plan.lease().seconds, small.lease().seconds), (45.0, 30.0));
    assert_eq!(plan.platforms["cloud-a"].endpoints["main"].ssh.as_ref().unwrap().value, "gpu-1");
    assert_eq!(plan.platforms["cloud-a"].endpoints["main"].user.as_deref(), Some("root"));
    let ids: Vec<&str> = plan.stages.iter().filter_map(|entry| entry.stage_id()).collect();
    assert_eq!(ids, ["inventory", "gpt-1gpu", "finetune-8gpu", "scaling", "storage", "soak", "own"]);
    let scaling = plan.stage("scaling").unwrap().spec().unwrap();
    assert_eq!((scaling.kind(), scaling.variants().len()), ("scaling", 4));
    assert_eq!(plan.stage("soak").unwrap().spec().unwrap().at_least_seconds(), 3600.0);
}

/// What versions of YAML read differently is not guessed where any value may stand.
#[test]
fn free_values_are_not_guessed() {
    let with = |value: &str| FULL.replace("{ value: false, by", &format!("{{ value: {value}, by"));
    for value in ["true", "3", "2.5", "3h40m", "\"no\"", "\"0x1f\"", "never", "-1"] {
        assert!(load("p.yaml", &with(value), &options()).plan.is_some(), "{value}");
    }
    for value in ["no", "True", "YES", "010", "0x1f", "1_000", ".nan", "-.inf", "~"] {
        let found = messages(&with(value));
        let refused =
            |m: &String| m.contains("ambiguous") || m.contains("may be a number") || m.contains("no value");
        assert!(found.iter().filter(|m| refused(m)).count() == 1, "{value}: {found:?}");
    }
}

#[test]
fn commands_are_never_templated() {
    let plan = load("p.yaml", FULL, &options()).plan.unwrap();
    let command = plan.workloads["finetune"].command.as_ref().unwrap().to_string();
    assert!(command.contains("\"${PLANRUN_GPUS}\""), "{command}");
    let endpoint = &plan.platforms["cloud-a"].endpoints["spot"];
    let create = endpoint.lifecycle.as_ref().unwrap().create.to_string();
    assert_eq!(create, "hooks/aws.sh create ${NOT_TEMPLATED}");
}

#[test]
fn judgement_takes_what_it_needs_and_reads_back() {
    let loaded = load("p.yaml", FULL, &options());
    let judgement = loaded.plan.unwrap().judgement(loaded.rubric.unwrap());
    let stage = &judgement.stages[1];
    assert_eq!((stage.id.as_str(), stage.kind.as_str(), stage.reference), ("gpt-1gpu", "throughput", true));
    assert_eq!(judgement.bind["throughput"], "gpt-1gpu");
    assert_eq!(judgement.rubric.name, "asking");
    // It goes into the journal and comes back without the plan.
    let text = serde_json::to_string(&judgement).unwrap();
    assert!(!text.contains("gpu-1\"") && !text.contains("id_ed25519"), "addresses and keys stay out: {text}");
    let back: crate::score::judgement::Judgement = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn options_that_differ_have_other_digests() {
    let digest_of = |text: &str| {
        let plan = load("p.yaml", text, &options()).plan.unwrap();
        plan.stage_ref(plan.stage("throughput").unwrap()).unwrap().options
    };
    assert_eq!(digest_of(SMALL), digest_of(&format!("# moved down\n{SMALL}")));
    assert_ne!(
        digest_of(SMALL),
        digest_of(&SMALL.replace("throughput: { workload: gpt }", "throughput: { workload: gpt, steps: 7 }"))
    );
    assert_ne!(digest_of(SMALL), digest_of(&SMALL.replace("layers: 2", "layers: 3")));
}

#[test]
fn a_digest_keeps_text_and_changes_apart() {
    let sets = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    assert_eq!(digest("a", &[]).len(), 64);
    assert_ne!(digest("a", &sets(&["b"])), digest("ab", &[]));
    assert_ne!(digest("a", &sets(&["b", "c"])), digest("a", &sets(&["bc"])));
}

#[test]
fn an_unset_variable_is_an_error_only_where_asked() {
    let text = SMALL.replace("host-a", "\"${NOPE}\"");
    let checked = load("p.yaml", &text, &options());
    assert!(checked.plan.is_some() && checked.findings.len() == 1, "{:?}", checked.findings);
    assert_eq!(checked.findings[0].severity, Severity::Warning);
    let run = load("p.yaml", &text, &Options { unset: Unset::Error, ..options() });
    assert!(run.plan.is_none() && run.findings.len() == 1, "{:?}", run.findings);
    assert_eq!(run.findings[0].severity, Severity::Error);
}

/// Every place of a plan that takes a value gets a variable that is not set; nothing else may be found.
#[test]
fn an_unset_variable_causes_no_other_finding() {
    // Maps, lists and commands take no variable; neither do names that several places share.
    let mut tried = 0;
    for (line_number, line) in FULL.lines().enumerate() {
        for (start, _) in line.match_indices(": ") {
            let value = &line[start + 2..];
            let end = value.find([',', '}', ']']).unwrap_or(value.len());
            let value = value[..end].trim();
            let structural = value.is_empty()
                || value.starts_with(['{', '[', '&', '*', '"', '\''])
                || value.contains(['#', '$']);
            let named = ["workload", "command", "setup", "ready", "throughput"]
                .iter()
                .any(|k| line[..start].ends_with(k));
            if structural || named {
                continue;
            }
            let mut lines: Vec<String> = FULL.lines().map(str::to_owned).collect();
            lines[line_number] =
                format!("{}\"${{NOT_SET}}\"{}", &line[..start + 2], &line[start + 2 + value.len()..]);
            let text = lines.join("\n");
            let loaded = load("p.yaml", &text, &options());
            let unexpected: Vec<&str> = loaded
                .findings
                .iter()
                .filter(|f| f.severity != Severity::Note && f.message != "`${NOT_SET}` is not set")
                .map(|f| f.message.as_str())
                .collect();
            assert!(unexpected.is_empty() && loaded.plan.is_some(), "{}: {unexpected:?}", lines[line_number]);
            tried += 1;
        }
    }
    assert!(tried > 80, "{tried}");
}

#[test]
fn values_of_variables_are_never_shown() {
    let secret = "tok3n-of-mine";
    let env = |name: &str| (name == "SECRET").then(|| secret.to_owned());
    for (from, to) in [
        ("currency: CNY", "currency: \"${SECRET}\""),
        ("layers: 2", "layers: \"${SECRET}\""),
        ("25.8 CNY/gpu-hour", "\"1 ${SECRET}\""),
        ("2026-01-12", "\"${SECRET}\""),
        ("workload: gpt }", "workload: \"${SECRET}\" }"),
        ("mode: weak", "mode: \"${SECRET}\""),
        ("name: q", "name: \"../${SECRET}\""),
        ("- inventory: {}", "- { id: \"${SECRET}/x\", inventory: {} }"),
        ("- inventory: {}", "- { storage: { size: 1 GB }, expect: { write_bandwidth: \">= 3 ${SECRET}\" } }"),
        ("- inventory: {}", "- { needs: [\"${SECRET}\"], inventory: {} }"),
        ("schema: 1", "schema: \"${SECRET}\""),
        ("currency: CNY", "currency: CNY\nrubric: \"${SECRET}.yaml\""),
        ("currency: CNY", "currency: CNY\nheadline: [\"${SECRET}\"]"),
    ] {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL, "{from}");
        let loaded = load("p.yaml", &text, &Options { env: &env, ..options() });
        let shown = loaded.render(Form::Human, "p.yaml", &text);
        assert!(loaded.has_errors() && !shown.contains(secret), "{to}: {shown}");
    }
}

/// A secret may not stand where it would be written down, and no finding shows it, not even those about other values.
#[test]
fn secrets_stand_only_where_nothing_is_written_down() {
    let secret = "canary-4711.x/y";
    let env = |name: &str| (name == "TOKEN").then(|| secret.to_owned());
    let check = |text: &str, set: &[&str]| {
        let set = set.iter().map(|s| (*s).to_owned()).collect();
        let read_file = |_: &str| Ok("name: \"${TOKEN}\"\ncriteria: {}\n".to_owned());
        let loaded = load("p.yaml", text, &Options { set, env: &env, read_file: &read_file, ..options() });
        let shown = loaded.render(Form::Human, "p.yaml", text);
        (loaded, shown)
    };
    let listed =
        format!("{FULL}x-own: &own \"${{TOKEN}}\"\n").replace("secrets: [HF_TOKEN]", "secrets: [TOKEN]");
    let free = listed
        .replace("env: {", "env: { URL: \"https://me:${TOKEN}@host\", OWN: \"${TOKEN:-x}\",")
        .replace("ssh: \"${HOST", "identity: \"~/${TOKEN}\", ssh: \"${TOKEN}${HOST");
    let (loaded, shown) = check(&free, &[]);
    assert!(!loaded.has_errors() && !shown.contains(secret), "{shown}");

    for (from, to) in [
        ("name: ", "name: \"${TOKEN}\" #"),
        ("period: ", "period: \"x${TOKEN}\" #"),
        ("region: cn", "region: \"${TOKEN:-x}\" #"),
        ("compliance: [", "compliance: [\"${TOKEN}\","),
        ("title: Cloud A", "title: \"a ${TOKEN}\""),
        ("- inventory: {}", "- { id: \"${TOKEN}\", inventory: {} }"),
        ("- inventory: {}", "- { needs: [\"${TOKEN}\", inventry], inventory: {} }"),
        ("headline: [", "headline: [\"s.${TOKEN}\", "),
        ("rubric: ", "rubric: \"${TOKEN}.yaml\" #"),
        ("rubric: ", "rubric: other/rubric.yaml #"),
        ("schema: 1", "schema: \"${TOKEN}\""),
        ("# a comment", "# canary-4711.x/y"),
    ] {
        let text = format!("# a comment\n{listed}").replacen(from, to, 1);
        assert!(text.contains(to), "{from}");
        let (loaded, shown) = check(&text, &[]);
        let shown = shown.replace(to, "");
        assert!(loaded.has_errors() && shown.contains("secret") && !shown.contains(secret), "{to}: {shown}");
    }
    for path in ["title", "tier"] {
        let (loaded, shown) = check(&listed, &[&format!("platforms.cloud-a.{path}={secret}")]);
        assert!(loaded.has_errors() && shown.contains("`TOKEN` stands in a `--set`"), "{shown}");
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn set_changes_values_before_they_are_read() {
    let loaded = set(
        FULL,
        &[
            "limits.max_spend=10 CNY",
            "stages.gpt-1gpu.repeat=3",
            "stages.0.inventory={paths: [/data]}",
            "platforms.cloud-a.offers.on_demand.rate=1 CNY/instance-hour",
            "platforms.cloud-a.declared.billing.itemised.value=false",
            "stages.soak.soak.duration=2h",
            "stages.soak.timeout=3h",
            "report.language=zh",
        ],
    );
    assert!(!loaded.has_errors(), "{:?}", loaded.findings);
    let plan = loaded.plan.unwrap();
    assert_eq!(plan.limits.as_ref().unwrap().max_spend.as_ref().unwrap().to_string(), "10.00 CNY");
    assert_eq!(plan.stage("gpt-1gpu").unwrap().repeats(), 3);
    assert_eq!(plan.stage("inventory").unwrap().inventory.as_ref().unwrap().paths, ["/data"]);
    assert_eq!(plan.stage("soak").unwrap().spec().unwrap().at_least_seconds(), 7200.0);
    assert_eq!(plan.report.language, Language::Zh);
}

#[test]
fn a_set_that_fits_nothing_names_itself() {
    for (argument, wanted) in [
        ("limits", "--set limits: `limits` has no `=`: write PATH=VALUE"),
        ("limit.max_spend=1 CNY", "--set limit.max_spend: unknown key `limit`"),
        ("limits.max_spend=10", "--set limits.max_spend: `10` has no currency: write 10 CNY, with a space"),
        ("platforms.cloud.region=x", "--set platforms.cloud.region: no `cloud` under `platforms`"),
        ("stages.gtp.repeat=2", "--set stages.gtp.repeat: no `gtp` in the list `stages`"),
        ("stages.+0.repeat=2", "--set stages.+0.repeat: no `+0` in the list `stages`"),
        ("stages.99.repeat=2", "--set stages.99.repeat: no `99` in the list `stages`"),
        ("name.x=2", "--set name.x: `name` is a single value: it has no `x`"),
        ("period=", "--set period: there is no value"),
        ("lease={a", "--set lease: no value: unclosed bracket '{'"),
        ("currency=EUR", "an amount in CNY, in a plan that reports in EUR"),
        (".=2", "--set .: `.` is no path: write keys with `.` between them"),
    ] {
        let loaded = set(FULL, &[argument]);
        let found: Vec<&str> = loaded.findings.iter().map(|f| f.message.as_str()).collect();
        assert!(found.contains(&wanted), "{argument}: {found:?}");
        assert!(loaded.plan.is_none());
        assert!(loaded.findings.iter().all(|f| f.pos.line > 0), "{:?}", loaded.findings);
    }
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn what_is_long_is_not_repeated_in_full() {
    let long = "x".repeat(50_000);
    for (text, argument) in [
        (SMALL.replace("name: q", &format!("name: !{long} q")), None),
        (SMALL.replace("name: q", &format!("{long}: q")), None),
        (SMALL.to_owned(), Some(format!("{long}=1"))),
        (SMALL.to_owned(), Some(format!("currency={long}"))),
        (SMALL.to_owned(), Some(long.clone())),
        (SMALL.to_owned(), Some(format!("stages.{long}.repeat=1"))),
    ] {
        let loaded = load("p.yaml", &text, &Options { set: argument.into_iter().collect(), ..options() });
        assert!(loaded.has_errors());
        for Finding { message, help, .. } in &loaded.findings {
            assert!(message.len() + help.as_ref().map_or(0, String::len) < 2500, "{} bytes", message.len());
        }
    }
}

#[test]
fn hostile_texts_are_refused_at_once() {
    let deep = |open: &str| open.repeat(100_000);
    for (text, wanted) in [
        (deep("["), "the text is nested too deeply"),
        (deep("{a: "), "the text is nested too deeply"),
        (deep("- "), "the text is nested too deeply"),
        ("a".repeat(MOST_BYTES + 1), "bytes are no plan"),
        ("x: \"".to_owned() + &"a".repeat(500_000), "unclosed quote"),
        ("x: [".to_owned() + &"a,".repeat(300_000), "unclosed bracket"),
    ] {
        let start = cpu_seconds();
        let found = messages(&text);
        // Far below one second each, of this thread alone: what else the machine does plays no part.
        let took = cpu_seconds() - start;
        assert!(took < 5.0, "{wanted}: {took} s");
        assert!(found.len() == 1 && found[0].contains(wanted), "{wanted}: {found:?}");
        let rendered = findings_of(&text);
        assert!(rendered.len() < 2000, "{} bytes", rendered.len());
    }
}

#[test]
fn many_faults_end_in_a_word_that_there_are_more() {
    let text = SMALL.replace("stages:\n", &format!("stages:\n{}", "  - inventory: { x: 1 }\n".repeat(400)));
    let loaded = load("p.yaml", &text, &options());
    let last = loaded.findings.last().unwrap();
    assert!(loaded.plan.is_none() && loaded.findings.len() <= 201, "{}", loaded.findings.len());
    assert_eq!(last.message, "there may be more: fix these first");
}

#[test]
fn bytes_that_are_no_text_have_a_line() {
    let at = |bytes: &[u8]| {
        let loaded = load_bytes("p.yaml", bytes, &options());
        let finding = &loaded.findings[0];
        (finding.pos.line, finding.pos.column, finding.message.clone())
    };
    assert_eq!(at(b"a: 1\nb: \xff\n"), (2, 4, "bytes that are no UTF-8".to_owned()));
    assert_eq!(at(b"a\0"), (1, 2, "a NUL byte: this is no text file".to_owned()));
    assert_eq!(at(b"\xff\xfea\0"), (1, 1, "the file is in UTF-16".to_owned()));
    assert_eq!(at(b""), (1, 1, "the file holds no plan: it is empty".to_owned()));
    assert_eq!(at(b"\xef\xbb\xbf\r\n"), (1, 1, "the file holds no plan: it is empty".to_owned()));
}

#[test]
fn columns_do_not_count_the_byte_order_mark() {
    let text = format!("\u{feff}titel: x\r\n{SMALL}");
    let finding = &load("p.yaml", &text, &options()).findings[0];
    assert_eq!((finding.pos.line, finding.pos.column, finding.pos.offset), (1, 1, 3));
    assert_eq!(&text[3..3 + finding.pos.len as usize], "titel");
}

/// A plan of the largest size is loaded in time that nobody notices; here with a margin for slow machines.
#[test]
fn a_large_plan_loads_fast() {
    let text = super::mutants::large(1_000_000);
    let start = std::time::Instant::now();
    let loaded = load("p.yaml", &text, &options());
    assert!(loaded.plan.is_some(), "{:?}", loaded.findings.first());
    assert!(start.elapsed().as_secs_f64() < 5.0, "{:?}", start.elapsed());
}

#[test]
fn type_names_in_schemas_are_unique_and_required_keys_known() {
    let shapes = shape::Shapes::get();
    let required = |name: &str| shapes.of(name).map(|shape| shape.required.join(" ")).unwrap_or_default();
    assert_eq!(required("Plan"), "schema name period currency platforms stages");
    assert_eq!(required("Offer"), "rate seen_on source");
    assert_eq!(required("Reference"), "layers heads width sequence batch");
    assert_eq!(required("Scaling"), "workload gpus mode");
    assert_eq!(required("Step"), "full_at per deduct");
    assert_eq!(required("Entry"), "");
    // A second type of a name gets a number from the schema generator.
    for schema in [schema(), rubric_schema()] {
        for name in schema["definitions"].as_object().unwrap().keys() {
            assert!(!name.ends_with(|c: char| c.is_ascii_digit()), "two types are called {name}");
        }
    }
    for kind in crate::stage::KINDS {
        assert!(shapes.of(kind.options).is_some(), "{} has no shape", kind.options);
    }
}

#[test]
fn schemas_admit_variables_and_refuse_empty_keys() {
    let schema = schema();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    assert_eq!(schema["patternProperties"]["^x-"], true);
    let entry = &schema["definitions"]["Entry"];
    assert_eq!(entry["oneOf"].as_array().unwrap().len(), crate::stage::KINDS.len());
    let text = schema.to_string();
    assert!(!text.contains("\"null\"") && !text.contains("null"), "{text}");
    assert!(schema["definitions"]["Endpoint"]["properties"]["gpus"]["anyOf"].as_array().unwrap().len() == 2);
}
