//! The plan as plain structs.
//!
//! No YAML and no rules here, and no positions but those of values that a rule points at. Whatever these types can
//! hold has the right shape; whether it makes sense is the matter of `check`.

use std::{borrow::Cow, fmt::Write as _};

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};

use super::text_or::{OneOrMany, TextOr};
use crate::{
    findings::{At, Place},
    measure::{
        Currency, MetricPath,
        quantity::{Bound, Duration},
    },
    platform::{Limits, Name, Named, Platform},
    score::{
        judgement::{ExchangeRate, Incumbent, Job, Judgement, Scenario, StageRef},
        rubric::Rubric,
    },
    stage::{KINDS, Spec, program::Workload},
};

/// The version of the plan's format that this program reads.
pub const SCHEMA: u32 = 1;

/// A test plan.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of this format: 1.
    pub schema: At<u32>,
    /// The plan's name; a part of the run folder's name.
    pub name: String,
    /// The period that it is run for, such as `2026-Q1`: what `diff` and `trend` line up by.
    pub period: String,
    /// The currency of the report.
    pub currency: At<Currency>,
    /// Limits over every instance that planrun creates, and over the run.
    pub limits: Option<At<Limits>>,
    /// How long a host works on without hearing from the controller; default 30 s.
    pub lease: Option<At<Duration>>,
    /// Leave the cached agent on the hosts.
    #[serde(default)]
    pub keep_agent: bool,
    /// Environment variables whose values are masked everywhere.
    #[serde(default)]
    pub secrets: Vec<Name>,
    /// What stages run, by name.
    #[serde(default)]
    pub workloads: Named<At<Workload>>,
    /// The candidates, by id.
    pub platforms: Named<Platform>,
    /// What is done on each candidate, in order.
    pub stages: Vec<At<Entry>>,
    /// Which of several stages of a kind is meant by the kind's name.
    #[serde(default)]
    pub bind: IndexMap<Name, Name>,
    /// The rubric: the name of a built-in one, a file, or a map.
    pub rubric: Option<At<RubricRef>>,
    /// The rubric's weight preset; default its own weights.
    pub preset: Option<Name>,
    /// What compute is bought for.
    #[serde(default)]
    pub jobs: Named<At<Job>>,
    /// Where the jobs run today.
    pub incumbent: Option<Incumbent>,
    /// Exchange rates, by currency.
    #[serde(default)]
    pub rates: Named<ExchangeRate>,
    /// Kinds of work to choose for.
    #[serde(default)]
    pub scenarios: Named<At<Scenario>>,
    /// The metrics that `diff` tests, at most six.
    #[serde(default)]
    pub headline: Vec<At<MetricPath>>,
    /// How the scorecard is rendered.
    #[serde(default)]
    pub report: Report,
}

/// How often a task is tried again; a benchmark is never run twice by accident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// After an error where a retry can help.
    #[serde(default)]
    pub errors: u32,
    /// After a preemption.
    #[serde(default)]
    pub preemptions: u32,
}

/// How the scorecard is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    /// The files to write; default all.
    pub formats: Vec<Format>,
    /// The language of prose and titles.
    pub language: Language,
}

impl Default for Report {
    fn default() -> Self {
        let formats = vec![Format::Md, Format::Html, Format::Json, Format::Csv, Format::Junit];
        Self { formats, language: Language::default() }
    }
}

/// A form of the scorecard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Markdown.
    Md,
    /// One self-contained HTML page.
    Html,
    /// The scorecard's data.
    Json,
    /// A table of all metrics.
    Csv,
    /// Outcomes as `JUnit` XML for CI.
    Junit,
}

/// The language of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

/// Where the rubric comes from.
#[derive(Debug, Clone)]
pub enum RubricRef {
    /// A built-in one, by name.
    Name(String),
    /// A file, by its path relative to the plan: the text holds `/` or ends in `.yaml` or `.yml`.
    File(String),
    /// Written in the plan.
    Inline(Box<Rubric>),
}

impl<'de> Deserialize<'de> for RubricRef {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(match TextOr::<Rubric>::deserialize(d)? {
            TextOr::Text(text) if is_file(&text) => Self::File(text),
            TextOr::Text(text) => Self::Name(text),
            TextOr::Other(rubric) => Self::Inline(Box::new(rubric)),
        })
    }
}

fn is_file(text: &str) -> bool {
    let extension = std::path::Path::new(text).extension();
    text.contains('/')
        || extension.is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}

impl JsonSchema for RubricRef {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "RubricRef".into()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        TextOr::<Rubric>::json_schema(g)
    }
}

/// Adds to an entry's schema that exactly one stage kind must be there.
fn one_kind(schema: &mut Schema) {
    let kinds: Vec<_> = KINDS.iter().map(|kind| json_schema!({ "required": [kind.name] })).collect();
    schema.insert("oneOf".to_owned(), kinds.into());
}

macro_rules! entry {
    ($($key:ident : $variant:ident ( $spec:ty )),* $(,)?) => {
        /// A stage of a plan: one stage kind as a key, beside the keys that all kinds share.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(transform = one_kind)]
        pub struct Entry {
            /// Its name in metrics, files and `needs`; default: the kind.
            pub id: Option<Name>,
            /// The endpoint that it runs on, or several; default the platform's first, for `inventory` all.
            pub at: Option<OneOrMany>,
            /// Stages that must have ended well on the same platform before it begins.
            #[serde(default)]
            pub needs: Vec<Name>,
            /// How often it is done; default once.
            pub repeat: Option<At<u32>>,
            /// How long one task may take.
            pub timeout: Option<At<Duration>>,
            /// How often a task is tried again.
            #[serde(default)]
            pub retries: Retries,
            /// What its metrics must be: `quantity` or `quantity{labels}` and a bound.
            #[serde(default)]
            pub expect: IndexMap<Name, At<Bound>>,
            $(
                #[doc = concat!("Options of the stage kind `", stringify!($key), "`.")]
                pub $key: Option<At<$spec>>,
            )*
        }

        impl Entry {
            /// The stage kinds that are there, with their places; a checked plan has exactly one.
            pub fn kinds(&self) -> Vec<(&'static str, Place)> {
                let mut found = Vec::new();
                $(if let Some(spec) = &self.$key { found.push((stringify!($key), spec.place)); })*
                found
            }

            /// Its kind; `None` unless there is exactly one.
            pub fn kind(&self) -> Option<&'static str> {
                match self.kinds().as_slice() {
                    [(kind, _)] => Some(kind),
                    _ => None,
                }
            }

            /// The options of its kind; `None` unless there is exactly one kind.
            pub fn spec(&self) -> Option<Spec> {
                self.kind()?;
                $(if let Some(spec) = &self.$key { return Some(Spec::$variant(spec.value.clone())); })*
                None
            }
        }
    };
}
crate::stage_kinds!(entry);

impl Entry {
    /// Its id: the one given, else the kind.
    pub fn stage_id(&self) -> Option<&str> {
        match &self.id {
            Some(id) => Some(&id.value),
            None => self.kind(),
        }
    }

    /// How often it is done.
    pub fn repeats(&self) -> u32 {
        self.repeat.as_ref().map_or(1, |n| n.value)
    }
}

impl Plan {
    /// How long a host works on without hearing from the controller.
    pub fn lease(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::from_seconds(30.0), |d| d.value)
    }

    /// The stage of an id.
    pub fn stage(&self, id: &str) -> Option<&Entry> {
        self.stages.iter().map(|e| &e.value).find(|e| e.stage_id() == Some(id))
    }

    /// What judgement takes from this plan, with the rubric resolved.
    pub fn judgement(&self, rubric: Rubric) -> Judgement {
        let text = |name: &Name| name.value.clone();
        Judgement {
            name: self.name.clone(),
            period: self.period.clone(),
            currency: self.currency.value.clone(),
            platforms: self.platforms.clone(),
            stages: self.stages.iter().filter_map(|entry| self.stage_ref(entry)).collect(),
            bind: self.bind.iter().map(|(kind, id)| (text(kind), text(id))).collect(),
            rubric,
            preset: self.preset.as_ref().map(text),
            jobs: self.jobs.clone(),
            incumbent: self.incumbent.clone(),
            rates: self.rates.clone(),
            scenarios: self.scenarios.clone(),
            headline: self.headline.clone(),
        }
    }

    /// A stage as judgement sees it; `None` for an entry without exactly one kind.
    pub fn stage_ref(&self, entry: &Entry) -> Option<StageRef> {
        let spec = entry.spec()?;
        let workload = spec.workload().map(|name| name.value.clone());
        let declared = workload.as_deref().and_then(|name| self.workloads.get(name));
        // The options are part of what was measured; so is the workload behind its name.
        let options = serde_json::json!({ "spec": spec, "workload": declared });
        Some(StageRef {
            id: entry.stage_id()?.to_owned(),
            kind: spec.kind().to_owned(),
            reference: declared.is_some_and(|w| w.reference.is_some()),
            workload,
            options: hex_digest([options.to_string().as_bytes()]),
        })
    }
}

/// The identity of a plan: SHA-256 over its text and the changes that the command line made to it, as hex.
pub fn digest(text: &str, set: &[String]) -> String {
    hex_digest(std::iter::once(text.as_bytes()).chain(set.iter().map(String::as_bytes)))
}

/// SHA-256 of several pieces, each with its length before it so that no two lists of pieces look alike.
fn hex_digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
