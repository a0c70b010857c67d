//! Who is judged: platforms, their endpoints, what they promise, what they charge, what people saw of them.
//!
//! Plain data, read from the plan. It knows no stage, no SSH and no plan.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    findings::At,
    measure::{
        Money,
        quantity::{Bytes, Date, Duration, PerHour, Rate, StoragePrice, TrafficPrice},
    },
};

/// A name in a plan, with the place where it stood.
pub type Name = At<String>;
/// A map of named things, in the order of the plan.
pub type Named<T> = IndexMap<Name, T>;

/// What kind of seller a platform is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A global cloud.
    Hyperscaler,
    /// A platform that rents out GPU machines.
    Rental,
    /// A cloud of domestic accelerators.
    Domestic,
    /// Machines of many small owners.
    Community,
    /// One's own machines.
    Owned,
}

/// A candidate platform.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// The name that reports show; default: the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What kind of seller it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The seller's name of the region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What the seller says it complies with, such as `mlps-3`: declared, not measurable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compliance: Vec<String>,
    /// What the seller promises of an instance; endpoints may override.
    #[serde(default)]
    pub promises: Promises,
    /// Dense peak rates of the accelerator by precision, where the built-in table has no trusted figure.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub peaks: Named<Peak>,
    /// What an instance costs, by offer.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub offers: Named<Offer>,
    /// What is charged beside compute.
    #[serde(default)]
    pub fees: Fees,
    /// How its instances are reached or created.
    pub endpoints: Named<At<Endpoint>>,
    /// What only people see, by question: each with who, when and the evidence.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub declared: Named<Declared>,
}

/// What a seller promises of an instance; everything is optional, what is left out is not checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    /// The exact product name of the accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// How many accelerators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory of one accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_per_gpu: Option<Bytes>,
    /// How many virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// How accelerators are connected, such as `nvlink` or `pcie`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interconnect: Option<String>,
    /// Network between instances, such as `rdma` or `ethernet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Whether nobody else uses the hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// Size of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// I/O operations per second of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_iops: Option<u32>,
}

impl Promises {
    /// These promises, with those of an endpoint in place of its own where it has any.
    #[must_use]
    pub fn overridden_by(&self, endpoint: &Self) -> Self {
        let (a, b) = (endpoint.clone(), self.clone());
        Self {
            gpu: a.gpu.or(b.gpu),
            gpus: a.gpus.or(b.gpus),
            memory_per_gpu: a.memory_per_gpu.or(b.memory_per_gpu),
            vcpus: a.vcpus.or(b.vcpus),
            memory: a.memory.or(b.memory),
            interconnect: a.interconnect.or(b.interconnect),
            network: a.network.or(b.network),
            exclusive: a.exclusive.or(b.exclusive),
            disk: a.disk.or(b.disk),
            disk_iops: a.disk_iops.or(b.disk_iops),
        }
    }
}

/// A dense peak rate with its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// Dense rate in 10^12 floating-point operations per second.
    pub tflops: f64,
    /// Where the figure comes from.
    pub source: String,
}

/// A price at which an instance can be had.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The price of an hour.
    pub rate: At<Rate>,
    /// What use is rounded up to when billed; default 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Duration>,
    /// What is billed at least for each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Duration>,
    /// The block of time that must be bought whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<Duration>,
    /// How often an instance is interrupted: the share per hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptions: Option<PerHour>,
    /// The day on which the price was seen.
    pub seen_on: Date,
    /// Where it was seen.
    pub source: String,
}

/// What a platform charges beside compute. Left out is not known, which is not the same as free.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fees {
    /// Keeping data on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<At<StoragePrice>>,
    /// Moving data out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<At<TrafficPrice>>,
    /// Keeping snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<At<StoragePrice>>,
    /// What a stopped instance is billed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// What a stopped instance is billed for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// Compute goes on being billed.
    pub compute: bool,
    /// Storage goes on being billed.
    pub storage: bool,
}

/// A machine that can be reached, or the recipe to create one. Exactly one of `ssh`, `local` and `lifecycle`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// A name of the user's `ssh_config`, `host` or `user@host:port`.
    #[serde(skip_serializing)]
    pub ssh: Option<At<String>>,
    /// The machine that planrun runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<At<bool>>,
    /// The port of the SSH server.
    #[serde(skip_serializing)]
    pub port: Option<u16>,
    /// The user to log in as.
    #[serde(skip_serializing)]
    pub user: Option<String>,
    /// The private key file.
    #[serde(skip_serializing)]
    pub identity: Option<String>,
    /// How many accelerators it has; left out or 0: none, and CPU cores take their place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// How many CPU cores tasks here may use; left out: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<At<u32>>,
    /// The platform's offer that this instance is had at; default: its only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<Name>,
    /// Promises that hold for this endpoint in place of the platform's.
    #[serde(default)]
    pub promises: Promises,
    /// Endpoints with one lane take turns; default: a lane of its own, or the shared lane of all local ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<Name>,
    /// The folder on the host under which a run's folder is made.
    #[serde(skip_serializing)]
    pub workdir: Option<String>,
    /// How the guest learns of a preemption.
    #[serde(skip_serializing)]
    pub notice: Option<Notice>,
    /// How a checkpoint outlives the instance.
    #[serde(skip_serializing)]
    pub state: Option<State>,
    /// How long a machine is kept for a person after an error.
    #[serde(skip_serializing)]
    pub keep_after_error: Option<Duration>,
    /// The user's own commands that create and destroy instances.
    #[serde(skip_serializing)]
    pub lifecycle: Option<At<Lifecycle>>,
}

/// Where an endpoint's `ssh` leads: a name that ssh knows, perhaps with a user and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshAddress {
    /// A name of the `ssh_config`, a host name or an address.
    pub host: String,
    /// Who logs in, if the text says so.
    pub user: Option<String>,
    /// The port, if the text says so.
    pub port: Option<u16>,
}

impl std::str::FromStr for SshAddress {
    type Err = String;
    /// Reads `host`, `user@host`, `host:port`, `[v6]:port` and their combinations; a bare IPv6 address is a host.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| Err(format!("`{text}` is no address: {why}"));
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(v6) => match v6.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or("?"))),
                None => return bad("`[` without `]`"),
            },
            None if rest.matches(':').count() > 1 => (rest, None),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port @ 1..)) => Some(port),
            Some(_) => return bad("a port is a number from 1 to 65535"),
        };
        // What becomes an argument must not be taken for an option, nor pass a shell of ssh's as more than a word.
        let plain = |word: &str| {
            !word.is_empty()
                && !word.starts_with('-')
                && !word
                    .contains(|c: char| c.is_whitespace() || c.is_control() || "'`\"$\\;&<>|(){}".contains(c))
        };
        if !plain(host) {
            return bad("the host is empty or holds what no host name has");
        }
        if user.is_some_and(|user| !plain(user)) {
            return bad("the user is empty or holds what no user name has");
        }
        Ok(Self { host: host.to_owned(), user: user.map(str::to_owned), port })
    }
}

/// The source of preemption notices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// AWS instance metadata.
    Aws,
    /// Google Compute Engine metadata.
    Gcp,
    /// Azure Scheduled Events.
    Azure,
    /// Alibaba Cloud metadata.
    Alibaba,
    /// Tencent Cloud metadata.
    Tencent,
    /// A signal to the process.
    Signal,
    /// A file that appears.
    File(NoticeFile),
    /// The ACPI power button.
    Acpi,
    /// Any URL with a rule.
    Custom(NoticeUrl),
    /// Whatever answers.
    Auto,
}

/// A file whose appearance is a notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoticeFile {
    /// The absolute path on the host.
    pub path: String,
}

/// A URL whose answer is a notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoticeUrl {
    /// The address to ask.
    pub url: String,
    /// The text in the answer that means a preemption.
    pub contains: String,
}

/// How a checkpoint outlives the instance that wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A folder that the old and the new instance both see.
    Volume(String),
    /// The user's own commands.
    Commands(StateCommands),
    /// Through the controller.
    Controller,
}

/// Commands that carry state over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateCommands {
    /// Saves what is in `PLANRUN_CHECKPOINT_DIR`.
    pub upload: Command,
    /// Brings it back.
    pub download: Command,
}

/// The user's commands around an instance; each gets and prints JSON.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lifecycle {
    /// Creates an instance and prints how to reach it.
    pub create: Command,
    /// Lists instances by token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Command>,
    /// Destroys what `create` printed.
    pub destroy: Command,
    /// Asks the provider to reclaim the instance now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<Command>,
    /// Succeeds on the host once the instance is usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Command>,
}

/// A command: text for `sh -c`, or a list of arguments. Never templated: values reach it as environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments.
    Argv(Vec<String>),
}

/// The name under which a [`Command`] asks a deserializer for its text untouched by `${…}`.
pub const RAW: &str = "$raw";

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct CommandVisitor;
        impl<'de> serde::de::Visitor<'de> for CommandVisitor {
            type Value = Command;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a shell command or a list of arguments")
            }
            fn visit_newtype_struct<D: serde::Deserializer<'de>>(self, d: D) -> Result<Command, D::Error> {
                d.deserialize_any(self)
            }
            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Command, E> {
                if s.trim().is_empty() {
                    Err(E::custom("an empty command"))
                } else {
                    Ok(Command::Shell(s.to_owned()))
                }
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, a: A) -> Result<Command, A::Error> {
                let argv = Vec::<String>::deserialize(serde::de::value::SeqAccessDeserializer::new(a))?;
                if argv.first().is_none_or(|program| program.trim().is_empty()) {
                    return Err(serde::de::Error::custom("an empty command"));
                }
                Ok(Command::Argv(argv))
            }
        }
        d.deserialize_newtype_struct(RAW, CommandVisitor)
    }
}

impl Serialize for Command {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shell(line) => line.serialize(s),
            Self::Argv(argv) => argv.serialize(s),
        }
    }
}

impl JsonSchema for Command {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Command".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 }
        ] })
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shell(line) => f.write_str(line),
            Self::Argv(argv) => f.write_str(&argv.join(" ")),
        }
    }
}

/// A value that a person wrote down.
#[derive(Debug, Clone, PartialEq)]
pub enum DeclaredValue {
    /// Yes or no.
    Yes(bool),
    /// A plain number.
    Number(f64),
    /// Text; a duration or another quantity is read from it by the rule that asks.
    Text(String),
}

impl<'de> Deserialize<'de> for DeclaredValue {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl serde::de::Visitor<'_> for ValueVisitor {
            type Value = DeclaredValue;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false, a number or text")
            }
            fn visit_bool<E>(self, v: bool) -> Result<DeclaredValue, E> {
                Ok(DeclaredValue::Yes(v))
            }
            fn visit_i64<E>(self, v: i64) -> Result<DeclaredValue, E> {
                Ok(DeclaredValue::Number(v as f64))
            }
            fn visit_u64<E>(self, v: u64) -> Result<DeclaredValue, E> {
                Ok(DeclaredValue::Number(v as f64))
            }
            fn visit_f64<E>(self, v: f64) -> Result<DeclaredValue, E> {
                Ok(DeclaredValue::Number(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<DeclaredValue, E> {
                Ok(DeclaredValue::Text(v.to_owned()))
            }
        }
        d.deserialize_any(ValueVisitor)
    }
}

impl Serialize for DeclaredValue {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Yes(v) => s.serialize_bool(*v),
            Self::Number(v) => s.serialize_f64(*v),
            Self::Text(v) => s.serialize_str(v),
        }
    }
}

impl JsonSchema for DeclaredValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeclaredValue".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["boolean", "number", "string"] })
    }
}

/// What a person saw of a platform.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// The answer.
    pub value: At<DeclaredValue>,
    /// Who saw it.
    pub by: String,
    /// When.
    pub seen_on: Date,
    /// When it stops counting, judged at the run's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Date>,
    /// Where it can be looked up.
    pub evidence: String,
}

/// Limits over every instance that planrun creates and over the run itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// When to warn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_after: Option<At<Duration>>,
    /// When everything ends, whatever happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<At<Duration>>,
    /// What may be spent at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_spend: Option<At<Money>>,
}
