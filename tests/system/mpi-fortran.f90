! A checkpoint by several collective writes, verified:  mpi-fortran STEM, to STEM.ckpt
!
! Built with -cpp -DBINDING=mpi, or -DBINDING=mpi_f08 -DF08.
program checkpoint
  use BINDING
  implicit none
#ifdef F08
  type(MPI_File) :: file
#else
  integer :: file
#endif
  integer, parameter :: length = 65536
  integer :: error, rank, ranks, row, written(length), found(length)
  integer(kind=MPI_OFFSET_KIND) :: at
  character(len=512) :: path

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path) // '.ckpt', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, error)
  if (error /= MPI_SUCCESS) stop 1
  do row = 0, 3
    written = row * ranks + rank
    at = int(row * ranks + rank, MPI_OFFSET_KIND) * length * 4
    if (row < 3) then
      call MPI_File_write_at_all(file, at, written, length, MPI_INTEGER, MPI_STATUS_IGNORE, error)
    else
      call MPI_File_write_at_all_begin(file, at, written, length, MPI_INTEGER, error)
      if (error /= MPI_SUCCESS) stop 2
      call MPI_File_write_at_all_end(file, written, MPI_STATUS_IGNORE, error)
    end if
    if (error /= MPI_SUCCESS) stop 3
  end do
  do row = 0, 3
    at = int(row * ranks + rank, MPI_OFFSET_KIND) * length * 4
    call MPI_File_read_at(file, at, found, length, MPI_INTEGER, MPI_STATUS_IGNORE, error)
    if (error /= MPI_SUCCESS .or. any(found /= row * ranks + rank)) stop 4
  end do
  call MPI_File_sync(file, error)
  call MPI_File_close(file, error)
  if (error /= MPI_SUCCESS) stop 5
  call MPI_Finalize(error)
end program checkpoint
