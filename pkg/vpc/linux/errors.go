package linux

import (
	"context"
	"errors"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// failure names what failed and gives the error its class, unless it has one
// or is the caller's own cancellation.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return &vpc.Error{Class: classOf(err), Op: op, Err: err}
}

// classOf tells an error's class by its errno (rtnetlink(7), errno(3)).
func classOf(err error) vpc.Class {
	var classed *vpc.Error
	var missing netlink.LinkNotFoundError
	var errno unix.Errno
	switch {
	case errors.As(err, &classed):
		return classed.Class
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return vpc.Transient
	case errors.As(err, &missing), errors.Is(err, os.ErrNotExist):
		return vpc.NotFound
	case errors.As(err, &errno):
		return classOfErrno(errno)
	default:
		return vpc.Transient
	}
}

func classOfErrno(errno unix.Errno) vpc.Class {
	switch errno {
	case unix.EEXIST:
		return vpc.Exists
	case unix.ESRCH, unix.ENOENT, unix.ENODEV, unix.ENXIO:
		return vpc.NotFound
	// The next hop is on no connected subnet: no machine of this network.
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return vpc.NotFound
	case unix.EPERM, unix.EACCES:
		return vpc.Denied
	case unix.EINVAL, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ERANGE, unix.EMSGSIZE:
		return vpc.Invalid
	case unix.ENOSPC, unix.ENOMEM:
		return vpc.Quota
	default:
		return vpc.Transient
	}
}
