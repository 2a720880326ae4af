//! Copying inside the kernel, which files of ours cannot take part in. The errors are those on which programs read and write instead.
//! Other files' copies may need a turn.

use std::ffi::{c_int, c_uint};

use libc::{off_t, size_t, ssize_t};

use crate::abi::Out;
use crate::failed::set_errno;
use crate::table;
use crate::turns;

fn refuse(errno: c_int) -> ssize_t {
    set_errno(errno);
    -1
}

interpose! {
    fn copy_file_range[real](
        from: c_int,
        from_offset: Out<off_t>,
        to: c_int,
        to_offset: Out<off_t>,
        bytes: size_t,
        flags: c_uint,
    ) -> ssize_t {
        if table::is_special(from) || table::is_special(to) {
            return refuse(libc::EXDEV);
        }
        turns::write(to, || real(from, from_offset, to, to_offset, bytes, flags))
    }

    fn sendfile | sendfile64 [real](to: c_int, from: c_int, offset: Out<off_t>, bytes: size_t) -> ssize_t {
        if table::is_special(from) || table::is_special(to) {
            return refuse(libc::EINVAL);
        }
        turns::write(to, || real(to, from, offset, bytes))
    }

    fn splice[real](
        from: c_int,
        from_offset: Out<off_t>,
        to: c_int,
        to_offset: Out<off_t>,
        bytes: size_t,
        flags: c_uint,
    ) -> ssize_t {
        if table::is_special(from) || table::is_special(to) {
            return refuse(libc::EINVAL);
        }
        turns::write(to, || real(from, from_offset, to, to_offset, bytes, flags))
    }
}
