//! A good plan, spoilt in thousands of ways at random: the reader never panics, points into the text, says why there
//! is no plan, and accepts nothing that serde refuses without it. `PLANRUN_MUTANTS=100000` tries more.

use std::fmt::Write as _;

use super::*;
use crate::findings::Severity;

const FULL: &str = include_str!("../../../fixtures/plans/good/full.yaml");
const RUBRIC: &str = include_str!("asking.yaml");

/// A small generator of numbers that look random and are the same each time (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn pick<'p>(&mut self, of: &[&'p str]) -> &'p str {
        of[self.below(of.len())]
    }
}

/// Pieces that plans, YAML and mistakes are made of.
const PIECES: [&str; 44] = [
    "~",
    "null",
    "",
    "{}",
    "[]",
    "- ",
    "\t",
    "  ",
    ": ",
    ",",
    "}",
    "{",
    "]",
    "[",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: *ssh",
    "!x ",
    "true",
    "no",
    "0",
    "010",
    "-1",
    "1e9",
    "0x1f",
    ".nan",
    "1_000",
    "99999999999999999999",
    "1:30",
    "2h",
    "80 GB",
    "25.8 CNY",
    ">= 3",
    "${X}",
    "${HOST}",
    "$${",
    "\u{a0}",
    "\u{1b}",
    "平台",
    "---\n",
    "|\n",
];

fn boundary(text: &str, mut index: usize) -> usize {
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

fn mutant(random: &mut Random) -> String {
    let mut text = FULL.to_owned();
    for _ in 0..=random.below(3) {
        let lines: Vec<&str> = text.lines().collect();
        let at = boundary(&text, random.below(text.len()));
        match random.below(8) {
            0 => {
                let end = boundary(&text, (at + 1 + random.below(6)).min(text.len()));
                text.replace_range(at..end.max(at), "");
            }
            1 | 2 => text.insert_str(at, random.pick(&PIECES)),
            3 => {
                // A whole value becomes another.
                if let Some(start) = text[at..].find(": ").map(|i| at + i + 2) {
                    let end = text[start..].find([',', '}', '\n']).map_or(text.len(), |i| start + i);
                    text.replace_range(start..end, random.pick(&PIECES));
                }
            }
            4 => {
                let mut kept = lines.clone();
                kept.remove(random.below(lines.len()));
                text = kept.join("\n");
            }
            5 => {
                let mut more = lines.clone();
                more.insert(random.below(lines.len()), lines[random.below(lines.len())]);
                text = more.join("\n");
            }
            6 => {
                // Two letters of a word change places.
                let letters: Vec<char> = text[at..].chars().take(2).collect();
                if let [a, b] = letters.as_slice()
                    && a.is_ascii_alphabetic()
                    && b.is_ascii_alphabetic()
                {
                    text.replace_range(at..at + 2, &format!("{b}{a}"));
                }
            }
            _ => {
                let line = random.below(lines.len());
                let changed = format!("{}{}", random.pick(&[" ", "  ", "\t", "-", "- "]), lines[line]);
                let mut moved: Vec<&str> = lines.clone();
                moved[line] = &changed;
                text = moved.join("\n");
            }
        }
        if text.is_empty() {
            return text;
        }
    }
    text
}

/// The plan as serde reads it from the parser, without this reader.
fn directly(text: &str) -> Result<Plan, String> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        merge_keys: serde_yaml::MergeKeyPolicy::Merge,
        with_snippet: false,
    };
    // Variables are not known there.
    let filled =
        text.replace("\"${HOST:?the 8-GPU instance}\"", "gpu-1").replace("\"${PERIOD:-2026-Q1}\"", "2026-Q1");
    let filled: String =
        filled.lines().filter(|line| !line.starts_with("x-")).fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{}", line.replace("<<: *ssh, ", ""));
            all
        });
    serde_yaml::from_str_with_options(&filled, options).map_err(|e| e.to_string())
}

fn try_one(text: &str) -> bool {
    let loaded = load("p.yaml", text, &Options { unset: Unset::Error, ..options() });
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().collect();
    for finding in &loaded.findings {
        let pos = finding.pos;
        let end = pos.offset as usize + pos.len as usize;
        assert!(end <= text.len() && pos.line >= 1 && pos.column >= 1, "{pos:?} is outside\n{text}");
        let line = lines.get(pos.line as usize - 1).copied().unwrap_or("");
        let past_the_end = pos.line as usize > lines.len() + 1;
        assert!(
            !past_the_end && pos.column as usize <= line.chars().count() + 1,
            "{pos:?} {}\n{text}",
            finding.message
        );
    }
    assert_eq!(loaded.plan.is_none(), loaded.has_errors(), "{:?}\n{text}", loaded.findings);
    // Printing never fails either, and prints nothing that acts on a terminal.
    let rendered = loaded.render(Form::Human, "p.yaml", text);
    assert!(!rendered.contains(['\u{1b}', '\u{a0}', '\t']), "{rendered:?}");
    // Serde alone knows no variables, no merges into a struct and no `x-` keys: where those are as they were.
    let special = |text: &str| -> Vec<String> {
        let is_special = |line: &&str| line.contains("${") || line.contains("*ssh") || line.starts_with("x-");
        text.lines().filter(is_special).map(str::to_owned).collect()
    };
    if loaded.plan.is_some() && special(text) == special(FULL) {
        let direct = directly(text);
        assert!(direct.is_ok(), "accepted, and serde says {direct:?}\n{text}");
    }
    loaded.plan.is_some()
}

#[test]
fn no_mutant_gets_through_or_breaks_anything() {
    assert!(directly(FULL).is_ok(), "{:?}", directly(FULL).err());
    let count = std::env::var("PLANRUN_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let accepted = (0..count).filter(|_| try_one(&mutant(&mut random))).count();
    // Some changes are harmless, most are not; a change of this share means that the test tests something else.
    let share = accepted as f64 / f64::from(u32::try_from(count).unwrap());
    assert!((0.05..0.60).contains(&share), "{share} of the mutants were accepted");
}

#[test]
fn rubrics_break_nothing_either() {
    let mut random = Random(7);
    for _ in 0..500 {
        let mut text = RUBRIC.to_owned();
        let at = boundary(&text, random.below(text.len()));
        text.insert_str(at, random.pick(&PIECES));
        let (rubric, findings) = load_rubric(&text, &options());
        assert!(rubric.is_some() || findings.iter().any(|f| f.severity == Severity::Error), "{text}");
    }
}

/// A plan of about so many bytes, without a fault.
pub(super) fn large(bytes: usize) -> String {
    let mut text = String::from(
        "schema: 1\nname: large\nperiod: 2026-Q1\ncurrency: CNY\nx-ssh: &ssh { user: root, port: 22 }\n",
    );
    text += "workloads:\n  gpt: { reference: { layers: 2, heads: 2, width: 64, sequence: 64, batch: 2 } }\nplatforms:\n";
    let mut i = 0;
    while text.len() < bytes * 7 / 10 {
        let _ = write!(
            text,
            "  platform-{i}:\n    title: Platform number {i}\n    tier: rental\n    promises: {{ gpu: NVIDIA L4, gpus: 8, memory: 2 TiB }}\n    \
             offers:\n      on_demand: {{ rate: 25.8 CNY/gpu-hour, granularity: 1s, seen_on: 2026-01-12, source: price page }}\n    \
             endpoints:\n      main: {{ ssh: host-{i}, gpus: 8, <<: *ssh, offer: on_demand }}\n"
        );
        i += 1;
    }
    text += "stages:\n  - inventory: {}\n  - scaling: { workload: gpt, gpus: [1, 8], mode: weak }\n";
    let mut i = 0;
    while text.len() < bytes {
        let _ = write!(
            text,
            "  - id: stage-{i}\n    at: main\n    timeout: 2h\n    needs: [inventory]\n    throughput: {{ workload: gpt, steps: 200 }}\n    \
             expect: {{ mfu: \">= 0.35\", jitter: \"<= 2 %\" }}\n"
        );
        i += 1;
    }
    text + "bind: { throughput: stage-0 }\n"
}
