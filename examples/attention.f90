! SPDX-License-Identifier: Apache-2.0
! Causal attention from Fortran through iso_c_binding, on the CPU. With all-zero queries every
! score is 0, so each row of the result is the mean of the values up to it: 0, 0.5, 1, 1.5.
!     gfortran attention.f90 $(pkg-config --libs pfattn)
! Fortran arrays store the first index fastest: q(channel, sequence, head, batch) is the library's
! [batch, head, sequence, channel] without a copy.
module pfattn
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int), parameter :: PFATTN_SUCCESS = 0, PFATTN_BACKEND_REF = 1
    integer(c_int), parameter :: PFATTN_DTYPE_F32 = 3, PFATTN_FORWARD_OPERATION = 0
    integer(c_int32_t), parameter :: PFATTN_FLAG_CAUSAL = 1

    type, bind(c) :: pfattn_tensor
        type(c_ptr) :: data = c_null_ptr
        integer(c_int) :: dtype = 0
        integer(c_int64_t) :: shape(4) = 0
        integer(c_int64_t) :: stride(4) = 0
    end type

    type, bind(c) :: pfattn_attention
        integer(c_size_t) :: struct_size = 0
        integer(c_int32_t) :: flags = 0
        real(c_double) :: alpha = 0
        integer(c_int64_t) :: diagonal = 0, distance = 0
        type(pfattn_tensor) :: q, k, v, bias, mask, q2, k2
        type(pfattn_tensor) :: tq, tk, tv, tbias, tq2, tk2
        type(pfattn_tensor) :: o, lse, to, tlse
        type(pfattn_tensor) :: dout, dlse, tdout
        type(pfattn_tensor) :: dq, dk, dv, dbias, dq2, dk2
        type(pfattn_tensor) :: tdq, tdk, tdv, tdbias, tdq2, tdk2
    end type

    type, bind(c) :: pfattn_handle_options
        integer(c_size_t) :: struct_size
        integer(c_int) :: backend
        integer(c_int32_t) :: device
    end type

    interface
        integer(c_int) function pfattn_create(options, handle) bind(c)
            import
            type(pfattn_handle_options), intent(in) :: options
            type(c_ptr), intent(out) :: handle
        end function
        subroutine pfattn_destroy(handle) bind(c)
            import
            type(c_ptr), value :: handle
        end subroutine
        integer(c_int) function pfattn_workspace_size(handle, operation, args, bytes) bind(c)
            import
            type(c_ptr), value :: handle
            integer(c_int), value :: operation
            type(pfattn_attention), intent(in) :: args
            integer(c_size_t), intent(out) :: bytes
        end function
        integer(c_int) function pfattn_forward(handle, args, workspace, workspace_bytes, &
                                               stream) bind(c)
            import
            type(c_ptr), value :: handle, workspace, stream
            type(pfattn_attention), intent(in) :: args
            integer(c_size_t), value :: workspace_bytes
        end function
        type(c_ptr) function pfattn_last_error() bind(c)
            import
        end function
        integer(c_size_t) function strlen(text) bind(c)
            import
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! Stop with the library's own sentence where a call failed.
    subroutine check(status)
        integer(c_int), intent(in) :: status
        character(kind=c_char), pointer :: text(:)
        type(c_ptr) :: message
        if (status == PFATTN_SUCCESS) return
        message = pfattn_last_error()
        call c_f_pointer(message, text, [strlen(message)])
        print *, text
        error stop 1
    end subroutine

    ! A contiguous f32 array (channel, sequence, head, batch).
    type(pfattn_tensor) function tensor_of(array) result(t)
        real(c_float), intent(in), target, contiguous :: array(:, :, :, :)
        integer(c_int64_t) :: n(4)
        n = shape(array, kind=c_int64_t)
        t%data = c_loc(array)
        t%dtype = PFATTN_DTYPE_F32
        t%shape = [n(4), n(3), n(2), n(1)]
        t%stride = [n(1) * n(2) * n(3), n(1) * n(2), n(1), 1_c_int64_t]
    end function
end module

program attention
    use pfattn
    implicit none
    integer, parameter :: batch = 1, heads = 2, length = 4, channels = 8
    real(c_float), target :: q(channels, length, heads, batch), k(channels, length, heads, batch)
    real(c_float), target :: v(channels, length, heads, batch), o(channels, length, heads, batch)
    real(c_float), target :: lse(1, length, heads, batch)
    character(kind=c_char), allocatable, target :: workspace(:)
    type(pfattn_handle_options) :: options
    type(pfattn_attention) :: args
    type(c_ptr) :: handle
    integer(c_size_t) :: bytes, start
    integer :: i

    q = 0
    k = 0
    do i = 1, length
        v(:, i, :, :) = real(i - 1, c_float)
    end do

    options = pfattn_handle_options(c_sizeof(options), PFATTN_BACKEND_REF, 0)
    call check(pfattn_create(options, handle))

    args%struct_size = c_sizeof(args)
    args%flags = PFATTN_FLAG_CAUSAL
    args%q = tensor_of(q)
    args%k = tensor_of(k)
    args%v = tensor_of(v)
    args%o = tensor_of(o)
    args%lse = tensor_of(lse)
    call check(pfattn_workspace_size(handle, PFATTN_FORWARD_OPERATION, args, bytes))

    ! A workspace begins at a multiple of 256 bytes.
    allocate (workspace(bytes + 256))
    start = 1 + modulo(-transfer(c_loc(workspace(1)), 0_c_intptr_t), 256_c_intptr_t)
    call check(pfattn_forward(handle, args, c_loc(workspace(start)), bytes, c_null_ptr))

    do i = 1, length
        print '(a, i0, a, f6.4, a, f6.4)', 'row ', i - 1, ': o = ', o(1, i, 1, 1), &
            ', lse = ', lse(1, i, 1, 1)
    end do
    call pfattn_destroy(handle)
end program
