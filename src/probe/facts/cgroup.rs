//! Control groups: which version rules, where a controller's files lie, and the tightest limit.
//!
//! Here: finding and walking. Not here: what a limit means for processor or memory.
//!
//! Invariant: a limit counts wherever it stands between the process's own group and the topmost
//! one that can be seen; the tightest wins.

use crate::probe::root::{Missing, Root};

/// Where cgroup file systems are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Which control groups rule this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Only the unified tree.
    V2,
    /// Only the trees of single controllers.
    V1,
    /// Controllers in v1 trees, beside an (empty) v2 tree.
    Hybrid,
}

impl Version {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V1 => "v1",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The control groups of this process.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    /// Which version rules.
    pub(crate) version: Version,
    /// Lines of `/proc/self/cgroup`: controllers (empty for v2) and path.
    memberships: Vec<(String, String)>,
}

/// The folders of one controller, from the process's own group up to the topmost that is visible.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    /// True for a folder of the unified tree.
    pub(crate) unified: bool,
    /// The folders, innermost first.
    pub(crate) folders: Vec<String>,
}

impl Cgroups {
    /// Finds out which version rules and where the process stands.
    ///
    /// # Errors
    /// `NotThere` on a system without control groups.
    pub(crate) fn find(root: &Root) -> Result<Self, Missing> {
        let groups = root.text("/proc/self/cgroup")?;
        let mounted = root.volume(MOUNT).map_err(|missing| match missing {
            Missing::NotThere => Missing::Unreadable(format!("{MOUNT} is hidden")),
            unreadable @ Missing::Unreadable(_) => unreadable,
        })?;
        let version = if mounted.kind == "cgroup2" {
            Version::V2
        } else if root.volume(&format!("{MOUNT}/unified")).is_ok_and(|volume| volume.kind == "cgroup2") {
            Version::Hybrid
        } else {
            Version::V1
        };
        let memberships = groups
            .lines()
            .filter_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
            })
            .collect();
        Ok(Self { version, memberships })
    }

    /// The path of the process's own group: in the unified tree, else in that of `cpu`.
    pub(crate) fn path(&self) -> Option<&str> {
        let of = |name: &str| self.memberships.iter().find(|(controllers, _)| has(controllers, name));
        let found = if self.version == Version::V2 { of("") } else { of("cpu").or_else(|| of("")) };
        found.map(|(_, path)| path.as_str())
    }

    /// The folders of a controller such as `cpu`.
    pub(crate) fn controller(&self, root: &Root, name: &str) -> Controller {
        let (unified, controllers, path) = match self.version {
            Version::V2 => (true, "", self.membership("")),
            Version::V1 | Version::Hybrid => {
                let v1 = self.memberships.iter().find(|(controllers, _)| has(controllers, name));
                let (controllers, path) = v1.map_or((name, "/"), |(all, path)| (all.as_str(), path.as_str()));
                (false, controllers, path)
            }
        };
        let mount = if unified {
            MOUNT.to_owned()
        } else {
            // `cpu,cpuacct` is mounted under its full name, with links under the single ones.
            [controllers, name]
                .iter()
                .map(|folder| format!("{MOUNT}/{folder}"))
                .find(|folder| root.exists(folder))
                .unwrap_or_else(|| format!("{MOUNT}/{name}"))
        };
        Controller { unified, folders: folders(&mount, path) }
    }

    fn membership(&self, controllers: &str) -> &str {
        self.memberships.iter().find(|(all, _)| all == controllers).map_or("/", |(_, path)| path)
    }
}

/// True when the list `cpu,cpuacct` holds the name; the empty name is the unified tree.
fn has(controllers: &str, name: &str) -> bool {
    if name.is_empty() { controllers.is_empty() } else { controllers.split(',').any(|one| one == name) }
}

/// The folders from `mount`+`path` up to `mount`; a path that leads out of view counts as the top.
fn folders(mount: &str, path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.contains(&"..") {
        return vec![mount.to_owned()];
    }
    (0..=parts.len())
        .rev()
        .map(|depth| {
            let mut folder = mount.to_owned();
            for part in &parts[..depth] {
                folder.push('/');
                folder.push_str(part);
            }
            folder
        })
        .collect()
}

impl Controller {
    /// The tightest of a limit over all folders, with its folder; `read` gives `None` for
    /// "no limit here".
    ///
    /// # Errors
    /// `Unreadable` when a file exists that cannot be read or understood: a limit may hide there.
    pub(crate) fn tightest(
        &self,
        root: &Root,
        read: impl Fn(&Root, &str) -> Result<Option<f64>, Missing>,
    ) -> Result<Option<(f64, String)>, Missing> {
        let mut tightest: Option<(f64, String)> = None;
        for folder in &self.folders {
            match read(root, folder) {
                Ok(Some(limit)) if tightest.as_ref().is_none_or(|(least, _)| limit < *least) => {
                    tightest = Some((limit, folder.clone()));
                }
                // Out of view (a container sees its own part only), or the true top, which has none.
                Ok(_) | Err(Missing::NotThere) => {}
                Err(unreadable) => return Err(unreadable),
            }
        }
        Ok(tightest)
    }

    /// The first folder, from the inside, in which this file exists, with the file's text.
    pub(crate) fn first(&self, root: &Root, file: &str) -> Result<(String, String), Missing> {
        for folder in &self.folders {
            match root.text(&format!("{folder}/{file}")) {
                Ok(text) => return Ok((folder.clone(), text)),
                Err(Missing::NotThere) => {}
                Err(unreadable) => return Err(unreadable),
            }
        }
        Err(Missing::NotThere)
    }
}

/// A limit file that holds `max` or a number; v1's huge number means none as well.
pub(crate) fn limit_file(root: &Root, path: &str) -> Result<Option<f64>, Missing> {
    let line = root.line(path)?;
    if line == "max" {
        return Ok(None);
    }
    let number: u64 = line.parse().map_err(|_| Missing::Unreadable(format!("`{line}` is no limit")))?;
    Ok((number < 1 << 60).then_some(number as f64))
}

/// The number behind a key in a file of `key number` lines.
pub(crate) fn keyed(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        if name == key { number.trim().parse::<u64>().ok().map(|number| number as f64) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_lead_from_the_inside_to_the_top() {
        assert_eq!(folders("/m", "/a/b"), ["/m/a/b", "/m/a", "/m"]);
        assert_eq!(folders("/m", "/"), ["/m"]);
        assert_eq!(folders("/m", "/../../x"), ["/m"], "out of view");
    }

    #[test]
    fn the_huge_number_of_v1_is_no_limit() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let limit = |text: &str| {
            std::fs::write(folder.path().join("limit"), text).unwrap();
            limit_file(&root, "/limit")
        };
        assert_eq!(limit("9223372036854771712\n"), Ok(None));
        assert_eq!(limit("max\n"), Ok(None));
        assert_eq!(limit("68719476736\n"), Ok(Some(68_719_476_736.0)));
        assert!(matches!(limit("-1\n"), Err(Missing::Unreadable(_))));
        assert_eq!(limit_file(&root, "/none"), Err(Missing::NotThere));
    }

    #[test]
    fn keys_match_whole_words() {
        assert_eq!(keyed("oom 3\noom_kill 2\n", "oom_kill"), Some(2.0));
        assert_eq!(keyed("oom_kill_disable 1\n", "oom_kill"), None);
    }
}
