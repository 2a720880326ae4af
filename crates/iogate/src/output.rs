//! Where results go: standard output, and files that appear whole or not at all.

use std::fmt::Display;
use std::fs::{self, TryLockError};
use std::io::{self, BufWriter, IsTerminal, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::{NamedTempFile, TempPath};

use crate::attempt::Attempt;
use crate::failure::Failure;

/// Prints a result. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    is_printed(text).map(drop)
}

/// Prints a result, unless its reader has seen enough.
fn is_printed(text: &str) -> Result<bool, Failure> {
    is_taken(io::stdout().lock().write_all(text.as_bytes()))
}

/// Whether standard output has taken what was written to it, to the last byte; not, if its reader has seen enough.
pub(crate) fn is_taken(written: io::Result<()>) -> Result<bool, Failure> {
    match written.and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::failed(anyhow::Error::new(error).context("standard output cannot be written")))
        }
    }
}

/// Opens a file to add to it, or makes it, for as long as no other process has it so; `taken` is what to say when one has.
pub(crate) fn open_alone(path: &Path, taken: impl FnOnce() -> Failure) -> Result<fs::File, Failure> {
    let context = || Attempt::write(path.display());
    let file = fs::File::options().read(true).append(true).create(true).open(path).with_context(context)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(taken()),
        Err(TryLockError::Error(error)) => Err(Failure::failed(anyhow::Error::new(error).context(context()))),
    }
}

/// A file that another process has for itself.
pub(crate) fn being_written(path: &Path) -> Failure {
    Failure::failed(anyhow!("{} is being written by another process", path.display()))
}

/// Says something beside the results, on standard error. That may be gone, or on a disk that is full: what is done does not depend on who
/// hears of it.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A word of a command as a shell takes it: what means something to a shell stands between quotes.
pub(crate) fn quoted(word: impl Display) -> String {
    let word = word.to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-+=./,:@%[]".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A file being written, until [`OutputFile::finish`] puts it in its place. Dropped, it leaves no trace, nor does a process that is killed
/// where the file system has files without names.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    out: BufWriter<Target>,
}

#[derive(Debug)]
enum Target {
    /// Has no name yet.
    Unnamed(fs::File),
    /// Has a name beside its place.
    Beside(NamedTempFile),
    /// A pipe, a terminal, standard output: nothing to rename.
    Direct(fs::File),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Unnamed(file) | Target::Direct(file) => file.write(bytes),
            Target::Beside(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses `-` where nothing is written to standard output: a file of this name is nobody's wish.
pub(crate) fn check_is_file(path: &Path) -> Result<(), Failure> {
    if path != Path::new("-") {
        return Ok(());
    }
    Err(Failure::usage(anyhow!("-: expected a file, as this is not written to standard output"))
        .hint("/dev/stdout is that, and ./- a file of this name"))
}

impl OutputFile {
    /// Begins a file that will be at `path`.
    pub(crate) fn create(path: &Path) -> Result<OutputFile, Failure> {
        check_is_file(path)?;
        let begin = || -> io::Result<OutputFile> {
            let path = behind_links(path);
            if let Some(file) = own_stream(&path)? {
                return Ok(OutputFile { path, out: BufWriter::new(Target::Direct(file)) });
            }
            if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
                let file = fs::File::options().write(true).open(&path)?;
                return Ok(OutputFile { path, out: BufWriter::new(Target::Direct(file)) });
            }
            let folder = folder_of(&path);
            let target = match unnamed(folder) {
                Some(file) => Target::Unnamed(file),
                None => Target::Beside(beside(folder)?),
            };
            Ok(OutputFile { path, out: BufWriter::with_capacity(1 << 16, target) })
        };
        let error = |error| anyhow::Error::new(error).context(Attempt::write(path.display()));
        begin().map_err(|cause| Failure::failed(error(cause)))
    }

    /// Writes the rest, and puts the file in its place.
    pub(crate) fn finish_with(mut self, text: &str) -> Result<(), Failure> {
        self.write_all(text.as_bytes()).with_context(|| Attempt::write(self.path.display()))?;
        self.finish()
    }

    /// Puts the file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let OutputFile { path, out } = self;
        let context = || Attempt::write(path.display());
        match out.into_inner().map_err(io::IntoInnerError::into_error).with_context(context)? {
            Target::Unnamed(file) => {
                name(file, folder_of(&path))
                    .and_then(|name| Ok(name.persist(&path)?))
                    .with_context(context)?;
            }
            Target::Beside(file) => {
                file.persist(&path).with_context(context)?;
            }
            Target::Direct(_) => {}
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The file that a path leads to: what a symbolic link names is replaced or made, and not the link.
fn behind_links(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    // It is not there yet, and may have a link that leads to it.
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&path) else { break };
        path = folder_of(&path).join(to);
    }
    path
}

/// As many links in a row as the kernel follows.
const LINKS_MAX: usize = 40;
/// As any new file: what the umask leaves of rw-rw-rw-.
const PERMISSIONS: u32 = 0o666;
/// What files that are not in their place yet are called, with more behind it.
const PREFIX: &str = ".iogate-";

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in a folder that has no name, if there is such a thing and it can be given one later.
fn unnamed(folder: &Path) -> Option<fs::File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(PERMISSIONS)).ok()?;
    let file = fs::File::from(file);
    fs::metadata(by_descriptor(&file)).is_ok().then_some(file)
}

/// What a file without a name is reached by.
fn by_descriptor(file: &fs::File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A file in a folder with a name of its own.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let permissions = fs::Permissions::from_mode(PERMISSIONS);
    let file = tempfile::Builder::new().prefix(PREFIX).permissions(permissions).tempfile_in(folder);
    file.map_err(without_path)
}

/// Gives a file a name in a folder: only what has one can replace what is there. Where it can have none, a copy of it has.
fn name(mut file: fs::File, folder: &Path) -> io::Result<TempPath> {
    let own = by_descriptor(&file);
    let link = |name: &Path| Ok(rustix::fs::linkat(CWD, &own, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
    if let Ok(named) = tempfile::Builder::new().prefix(PREFIX).make_in(folder, link) {
        return Ok(named.into_temp_path());
    }
    let mut copy = beside(folder)?;
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, copy.as_file_mut())?;
    Ok(copy.into_temp_path())
}

/// A temporary file has a name that nobody gave: it is left out of what people read.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Standard output or standard error, if that is what the path names (as /dev/stdout does, also when it is
/// redirected to a file, which must not be replaced under the stream).
fn own_stream(path: &Path) -> io::Result<Option<fs::File>> {
    let Ok(named) = fs::metadata(path) else { return Ok(None) };
    for stream in [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()] {
        let Ok(stream) = stream.map(fs::File::from) else { continue };
        let open = stream.metadata()?;
        // A device such as /dev/null or a terminal is as well opened by its name.
        if (open.is_file() || open.file_type().is_fifo())
            && (open.dev(), open.ino()) == (named.dev(), named.ino())
        {
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

/// Whether two paths name one regular file, or the place for one. Pipes and devices may be named twice.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => {
            let place = |path| std::path::absolute(behind_links(path)).ok();
            place(one) == place(other)
        }
        _ => false,
    }
}

/// Refuses an output that would replace what is read for it; outputs by their flags, inputs by what they are. An input need not be a file.
pub(crate) fn check_inputs_stay<'a>(
    outputs: &[(&str, Option<&Path>)],
    inputs: impl IntoIterator<Item = (&'a str, &'a Path)>,
) -> Result<(), Failure> {
    for (what, input) in inputs.into_iter().filter(|(_, input)| input.is_file()) {
        for (flag, output) in outputs.iter().filter_map(|(flag, output)| Some((flag, (*output)?))) {
            if same_file(output, input) {
                let path = output.display();
                return Err(Failure::usage(anyhow!(
                    "{flag} {path} would replace {what}: expected another file"
                )));
            }
        }
    }
    Ok(())
}

/// Prints a text, or with `--watch SECONDS` again and again what it is by then: in place on a terminal; `is_json` as lines.
pub(crate) fn print_or_watch(
    seconds: Option<f64>,
    is_json: bool,
    shown: impl Fn() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let Some(seconds) = seconds else { return print(&shown()?) };
    let pause = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|pause| *pause >= Duration::from_millis(50))
        .ok_or_else(|| Failure::usage(anyhow!("--watch {seconds}: expected at least 0.05 seconds")))?;
    let clear = std::io::stdout().is_terminal() && !is_json;
    let mut first = true;
    loop {
        let shown = shown()?;
        let text = match clear {
            // Home, the text with each line's rest erased, then the rest of the screen: no flicker.
            true => format!("\x1b[H{}\x1b[J", shown.replace('\n', "\x1b[K\n")),
            false => format!("{}{shown}", if first || is_json { "" } else { "\n" }),
        };
        if !is_printed(&text)? {
            return Ok(());
        }
        first = false;
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a folder, each with what it has and its permissions.
    fn files(folder: &Path) -> Vec<(PathBuf, String, u32)> {
        let files = fs::read_dir(folder).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let mode = fs::metadata(&path).unwrap().mode();
            (path.clone(), fs::read_to_string(&path).unwrap(), mode)
        });
        files.collect()
    }

    #[test]
    fn a_file_is_the_same_whether_it_had_a_name_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before").unwrap();
        let usual = fs::metadata(&path).unwrap().mode();
        let write = |target: Target, text: &str| {
            let mut file = OutputFile { path: path.clone(), out: BufWriter::new(target) };
            file.write_all(b"a ").unwrap();
            file.finish_with(text).unwrap();
            assert_eq!(files(folder.path()), [(path.clone(), format!("a {text}"), usual)]);
        };
        write(Target::Beside(beside(folder.path()).unwrap()), "name");
        let Some(file) = unnamed(folder.path()) else {
            return eprintln!("skipped: no files without names here");
        };
        write(Target::Unnamed(file), "file without one");
    }

    #[test]
    fn a_link_leads_to_the_file_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("results")).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        link("results/new", "link");
        link("link", "another");
        assert!(same_file(&at("another"), &at("results/new")) && !same_file(&at("link"), &at("results/old")));
        // Where nothing is yet, and in the place of what was there.
        for text in ["first", "second"] {
            OutputFile::create(&at("another")).ok().unwrap().finish_with(text).ok().unwrap();
            assert!(fs::symlink_metadata(at("another")).unwrap().is_symlink());
            assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(at("results/new")).unwrap(), text);
        }
        link("nowhere/new", "astray");
        assert!(OutputFile::create(&at("astray")).is_err());
    }

    #[test]
    fn a_word_is_one_for_a_shell() {
        for word in
            ["/srv/data", "unix:/run/s,io1:7000", "[::1]:1", "a b", "", "it's", "$HOME", "~", "a\nb", "*"]
        {
            let echo = format!("printf %s {}", quoted(word));
            let said = std::process::Command::new("sh").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
        assert_eq!(quoted("unix:/run/s,[::1]:7000"), "unix:/run/s,[::1]:7000");
    }

    #[test]
    fn what_can_have_no_name_is_copied() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // As a file that has lost its name can have none again.
        let gone = elsewhere.path().join("gone");
        let mut file = fs::File::options().read(true).write(true).create_new(true).open(&gone).unwrap();
        file.write_all(b"all of it").unwrap();
        fs::remove_file(gone).unwrap();
        let path = folder.path().join("file");
        name(file, folder.path()).unwrap().persist(&path).unwrap();
        let found = files(folder.path());
        assert_eq!((found.len(), &found[0].0, found[0].1.as_str()), (1, &path, "all of it"));
    }
}
