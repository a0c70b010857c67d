//! Platforms, their offers and endpoints, and workloads.

use indexmap::IndexMap;

use super::Check;
use crate::{
    findings::{At, Place},
    plan::suggest,
    platform::{Endpoint, Name, Platform, SshAddress},
    stage::program::{Reader, Workload},
};

/// Number formats that a peak may be given for.
const PRECISIONS: [&str; 5] = ["fp32", "tf32", "bf16", "fp16", "fp8"];

impl Check<'_> {
    pub(super) fn platforms(&self) {
        let platforms = &self.plan.platforms;
        let key = self.key_place(&["platforms"]);
        if self.names.platforms.is_empty() {
            self.context.error(key, "no platform: nothing to measure");
        } else if self.names.platforms.len() == 1 {
            self.context.warning(key, "one candidate: a scorecard compares at least two");
        }
        for (id, platform) in platforms {
            self.identifier("platform", id);
            self.offers(id, platform);
            self.fees(platform);
            self.peaks(platform);
            self.declared(id, platform);
            if platform.endpoints.is_empty() && !self.lost_inside(&["platforms", &id.value, "endpoints"]) {
                self.context.error(
                    self.key_place(&["platforms", &id.value, "endpoints"]),
                    "no endpoint: the platform cannot be reached",
                );
            }
            for (name, endpoint) in &platform.endpoints {
                self.identifier("endpoint", name);
                self.endpoint(id, platform, name, endpoint);
            }
        }
        self.lanes();
    }

    /// Whether the map at the path lost a value.
    pub(super) fn lost_inside(&self, path: &[&str]) -> bool {
        self.node(path).is_some_and(|node| self.context.lost(node.place))
    }

    fn offers(&self, id: &Name, platform: &Platform) {
        for (name, offer) in &platform.offers {
            self.identifier("offer", name);
            let of =
                |key: &str| self.place(&["platforms", &id.value, "offers", &name.value, key], name.place);
            self.convertible(offer.rate.place, &offer.rate.money.currency);
            for (key, duration) in [("granularity", offer.granularity), ("term", offer.term)] {
                if duration.is_some_and(|d| d.seconds <= 0.0) {
                    self.context.error(of(key), format!("a {key} of nothing: drop it"));
                }
            }
            self.seen_on(of("seen_on"), offer.seen_on);
        }
    }

    fn fees(&self, platform: &Platform) {
        let fees = &platform.fees;
        for fee in [&fees.storage, &fees.snapshot].into_iter().flatten() {
            self.convertible(fee.place, &fee.money.currency);
        }
        if let Some(fee) = &fees.egress {
            self.convertible(fee.place, &fee.money.currency);
        }
    }

    fn peaks(&self, platform: &Platform) {
        for (precision, peak) in &platform.peaks {
            self.one_of("number format", precision, &PRECISIONS);
            if !(peak.tflops.is_finite() && peak.tflops > 0.0) {
                self.context.error(precision.place, "a peak of nothing");
            }
        }
    }

    fn declared(&self, id: &Name, platform: &Platform) {
        for (question, declared) in &platform.declared {
            let of = |key: &str| {
                self.place(&["platforms", &id.value, "declared", &question.value, key], question.place)
            };
            self.seen_on(of("seen_on"), declared.seen_on);
            let Some(expires) = declared.expires else { continue };
            if expires < declared.seen_on {
                self.context.error(of("expires"), "it expired before it was seen");
            } else if let Some(today) = self.today
                && expires < today
                && !self.context.is_unresolved(of("expires"))
            {
                let message = format!("`{}` expired: the question is open again", question.value);
                self.context.warning(of("expires"), message);
            }
        }
    }

    fn endpoint(&self, id: &Name, platform: &Platform, name: &Name, endpoint: &At<Endpoint>) {
        let of = |key: &str| self.place(&["platforms", &id.value, "endpoints", &name.value, key], name.place);
        let key_of = |key: &str| self.key_place(&["platforms", &id.value, "endpoints", &name.value, key]);

        let ways: Vec<&str> = [
            ("ssh", endpoint.ssh.is_some()),
            ("local", endpoint.local.is_some()),
            ("lifecycle", endpoint.lifecycle.is_some()),
        ]
        .into_iter()
        .filter_map(|(way, there)| there.then_some(way))
        .collect();
        match ways.as_slice() {
            [] if self.context.lost(endpoint.place) => {}
            [] => self.context.error_with(
                name.place,
                format!("nothing says how `{}` is reached", name.value),
                Some("give exactly one of `ssh`, `local` and `lifecycle`".to_owned()),
            ),
            [_] => {}
            [first, second, ..] => self.context.error_with(
                key_of(second),
                format!("`{second}` beside `{first}`"),
                Some("an endpoint has exactly one of `ssh`, `local` and `lifecycle`".to_owned()),
            ),
        }
        if let Some(local) = &endpoint.local {
            if !local.value && !self.context.is_unresolved(local.place) {
                self.context.error(local.place, "`local: false` says nothing: drop it, or write true");
            }
            for (key, there) in [
                ("port", endpoint.port.is_some()),
                ("user", endpoint.user.is_some()),
                ("identity", endpoint.identity.is_some()),
            ] {
                if there && endpoint.ssh.is_none() {
                    self.context
                        .error(key_of(key), format!("`{key}` goes with `ssh`, and this machine is local"));
                }
            }
        }
        if let Some(ssh) = &endpoint.ssh
            && let Some(address) = self.ssh(ssh)
        {
            let (user, port) = (address.user.is_some(), address.port.is_some());
            for (key, twice) in
                [("user", user && endpoint.user.is_some()), ("port", port && endpoint.port.is_some())]
            {
                if twice {
                    self.context.error(key_of(key), format!("`{key}` stands in `ssh`, too: say it once"));
                }
            }
        }
        if endpoint.cpus.as_ref().is_some_and(|cpus| cpus.value == 0) {
            self.context.error(of("cpus"), "no CPU core at all: tasks could not run");
        }
        self.promise(id, platform, name, endpoint);
        self.offer_in_use(id, platform, name, endpoint);
    }

    /// The address becomes an argument of `ssh`.
    fn ssh(&self, ssh: &At<String>) -> Option<SshAddress> {
        if self.context.is_unresolved(ssh.place) {
            return None;
        }
        if ssh.value.is_empty() {
            self.context.error(ssh.place, "an empty address");
            return None;
        }
        let help = || Some("write a name of your ssh_config, `host` or `user@host:port`".to_owned());
        ssh.value.parse().map_err(|why: String| self.context.error_with(ssh.place, why, help())).ok()
    }

    fn promise(&self, id: &Name, platform: &Platform, name: &Name, endpoint: &At<Endpoint>) {
        let own = ["platforms", &id.value, "endpoints", &name.value, "promises"];
        let unsure = |path: &[&str]| self.node(path).is_some_and(|node| self.context.unsure(node.place));
        let unsure = self.context.unsure(endpoint.place)
            || unsure(&own)
            || unsure(&["platforms", &id.value, "promises"]);
        let place = self.place(&["platforms", &id.value, "endpoints", &name.value, "gpus"], name.place);
        let promised = platform.promises.overridden_by(&endpoint.promises).gpus;
        if let (Some(promised), Some(gpus)) = (promised, endpoint.gpus)
            && promised != gpus
            && !unsure
        {
            let message = format!("{gpus} accelerators here, {promised} promised");
            let help = Some("give the endpoint `promises` of its own if it is another instance".to_owned());
            self.context.warning_with(place, message, help);
        }
    }

    fn offer_in_use(&self, id: &Name, platform: &Platform, name: &Name, endpoint: &At<Endpoint>) {
        let Some(names) = self.names.platforms.get(id.value.as_str()) else { return };
        let offers = &names.offers;
        if let Some(offer) = &endpoint.offer {
            self.known("offer", offer, offers);
        }
        let Some(lifecycle) = &endpoint.lifecycle else { return };
        if offers.is_empty() {
            self.context.warning(name.place, "instances are created here, and no offer says what they cost");
        } else if offers.len() > 1 && endpoint.offer.is_none() && !self.context.lost(endpoint.place) {
            let list: Vec<&str> = offers.iter().copied().collect();
            let message =
                format!("instances are created here at one of {}: say which by `offer`", list.join(", "));
            self.context.error(name.place, message);
        }
        let paid = platform.offers.values().any(|offer| offer.rate.money.micros > 0);
        let limits = self.plan.limits.as_ref();
        let stop =
            limits.is_some_and(|limits| limits.stop_after.is_some() || self.context.lost(limits.place));
        if paid && !stop && !self.context.lost(self.root.place) {
            let help = Some("set `limits: { stop_after: … }`".to_owned());
            self.context.error_with(
                lifecycle.place,
                "a lifecycle creates instances that cost money, and nothing ends them",
                help,
            );
        }
    }

    /// A lane that only one endpoint uses was probably meant to be another.
    fn lanes(&self) {
        let mut users: IndexMap<&str, Vec<Place>> = IndexMap::new();
        for endpoint in self.plan.platforms.values().flat_map(|platform| platform.endpoints.values()) {
            if let Some(lane) = &endpoint.lane {
                users.entry(&lane.value).or_default().push(lane.place);
            }
        }
        for (lane, places) in &users {
            if let [place] = places.as_slice()
                && !self.context.is_full_of_remarks()
            {
                let others = users.keys().copied().filter(|other| other != lane);
                let near = suggest::nearest(lane, others);
                let help = near.map(|near| format!("did you mean `{near}`?"));
                let message = format!("only one endpoint is in lane `{lane}`: a lane is shared");
                self.context.warning_with(*place, message, help);
            }
        }
    }

    pub(super) fn workloads(&self) {
        for (name, workload) in &self.plan.workloads {
            self.identifier("workload", name);
            self.workload(name, workload);
        }
    }

    fn workload(&self, name: &Name, workload: &At<Workload>) {
        let key_of = |key: &str| self.key_place(&["workloads", &name.value, key]);
        match (&workload.reference, &workload.command) {
            (Some(_), Some(_)) => {
                let help = Some("a workload is planrun's `reference` or a `command` of yours".to_owned());
                self.context.error_with(key_of("command"), "`command` beside `reference`", help);
            }
            (None, None) if !self.context.lost(workload.place) => {
                let help = Some("give exactly one of `reference` and `command`".to_owned());
                self.context.error_with(name.place, format!("workload `{}` runs nothing", name.value), help);
            }
            _ => {}
        }
        for file in
            workload.files.iter().filter(|f| !(self.has_file)(&f.value) && !self.context.unsure(f.place))
        {
            let help = Some("the path is relative to the plan".to_owned());
            self.context.error_with(file.place, format!("the file `{}` is not there", file.value), help);
        }
        if workload.reference.is_some() && workload.command.is_none() {
            for key in [
                "files",
                "setup",
                "env",
                "workdir",
                "serve",
                "collect",
                "image",
                "reader",
                "unit",
                "flops_per_unit",
            ] {
                if self.node(&["workloads", &name.value, key]).is_some() {
                    self.context
                        .error(key_of(key), format!("`{key}` goes with `command`, not with `reference`"));
                }
            }
        }
        if let Some(reference) = &workload.reference
            && !self.context.unsure(reference.place)
        {
            let sizes = [
                ("layers", reference.layers),
                ("heads", reference.heads),
                ("width", reference.width),
                ("sequence", reference.sequence),
                ("batch", reference.batch),
            ];
            for (key, _) in sizes.into_iter().filter(|(_, size)| *size == 0) {
                let place = self.place(&["workloads", &name.value, "reference", key], reference.place);
                self.context.error(place, format!("`{key}` is 0: there is nothing to train"));
            }
            if reference.heads > 0 && reference.width % reference.heads != 0 {
                let place = self.place(&["workloads", &name.value, "reference", "heads"], reference.place);
                self.context.error(place, "`heads` does not divide `width`");
            }
        }
        self.program(name, workload);
    }

    fn program(&self, name: &Name, workload: &At<Workload>) {
        let of = |path: &[&str]| {
            let mut full = vec!["workloads", name.value.as_str()];
            full.extend(path);
            self.place(&full, name.place)
        };
        for variable in workload.env.keys() {
            let place = self.key_place(&["workloads", &name.value, "env", variable]);
            let is_name = !variable.starts_with(|c: char| c.is_ascii_digit())
                && !variable.is_empty()
                && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_name {
                self.context.error(place, format!("`{variable}` is no name of an environment variable"));
            } else if variable.starts_with("PLANRUN_") {
                self.context.error(place, format!("`{variable}` is set by planrun itself"));
            }
        }
        for (i, path) in workload.collect.iter().enumerate() {
            if path.starts_with('/') || path.split('/').any(|part| part == "..") {
                let place = of(&["collect", &i.to_string()]);
                self.context.error(
                    place,
                    format!("`{path}` leaves the working folder: only what is inside can be fetched"),
                );
            }
        }
        if let Some(flops) = workload.flops_per_unit {
            let counts = flops.is_finite() && flops > 0.0;
            if !counts && !self.context.unsure(workload.place) {
                self.context.error(of(&["flops_per_unit"]), "no floating-point operations at all");
            }
            if workload.unit.is_none() && !self.context.lost(workload.place) {
                let message = "`flops_per_unit` without `unit`: say whether a unit is samples or tokens";
                self.context.error(self.key_place(&["workloads", &name.value, "flops_per_unit"]), message);
            }
        }
        if let Some(reader) = &workload.reader
            && let Reader::Pattern(patterns) = &reader.value
        {
            if patterns.is_empty() && !self.context.lost(reader.place) {
                self.context.error(reader.place, "no pattern: nothing would be read");
            }
            for (pattern, fault) in patterns.iter().filter_map(|p| p.fault().map(|fault| (p, fault))) {
                self.context.error(pattern.regex.place, fault);
            }
        }
    }
}
