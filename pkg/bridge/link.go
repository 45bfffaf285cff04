package bridge

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// A link is a network interface as the kernel tells of it.
type link struct {
	index    int
	name     string
	altnames []string
	alias    string
	kind     string // "bridge", "veth"; empty for hardware
	up       bool
	loopback bool
	mtu      int
	mac      net.HardwareAddr
	master   int
	group    uint32
	peer     int   // of a veth: the index of its other end, in that one's namespace
	addrGen  uint8 // how it makes IPv6 addresses; generates where that is unknown
	hairpin  bool
	// Of a bridge alone.
	stp      uint32
	snooping uint8
	nfCall4  uint8
	nfCall6  uint8
}

// extFilter leaves counters out of an answer: RTEXT_FILTER_SKIP_STATS of
// linux/rtnetlink.h.
const extFilter = 1 << 3

// linkByName finds a link by its name or one of its altnames; the error is
// ENODEV when there is none.
func (c *conn) linkByName(name string) (*link, error) {
	kind := uint16(unix.IFLA_IFNAME)
	if len(name) >= unix.IFNAMSIZ {
		kind = unix.IFLA_ALT_IFNAME
	}
	return c.link(linkMessage(unix.RTM_GETLINK, 0, 0).attrText(kind, name))
}

func (c *conn) linkByIndex(index int) (*link, error) {
	return c.link(linkMessage(unix.RTM_GETLINK, 0, index))
}

func (c *conn) link(m *message) (*link, error) {
	b, err := c.get(m.attr32(unix.IFLA_EXT_MASK, extFilter))
	if err != nil {
		return nil, err
	}
	return parseLink(b)
}

// portsOf lists the links whose master is the given one.
func (c *conn) portsOf(master int) ([]*link, error) {
	m := linkMessage(unix.RTM_GETLINK, 0, 0).
		attr32(unix.IFLA_EXT_MASK, extFilter).
		attr32(unix.IFLA_MASTER, uint32(master))
	found, err := c.dump(m)
	if err != nil {
		return nil, err
	}
	links := make([]*link, 0, len(found))
	for _, b := range found {
		l, err := parseLink(b)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

func parseLink(b []byte) (*link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("link: %w", errMalformed)
	}
	flags := native.Uint32(b[8:])
	l := &link{
		index:    int(int32(native.Uint32(b[4:]))),
		up:       flags&unix.IFF_UP != 0,
		loopback: flags&unix.IFF_LOOPBACK != 0,
	}
	for kind, v := range attributes(b[unix.SizeofIfInfomsg:]) {
		l.set(kind, v)
	}
	return l, nil
}

func (l *link) set(kind uint16, v []byte) {
	switch kind {
	case unix.IFLA_IFNAME:
		l.name = text(v)
	case unix.IFLA_IFALIAS:
		l.alias = text(v)
	case unix.IFLA_MTU:
		l.mtu = int(number32(v))
	case unix.IFLA_ADDRESS:
		l.mac = append(net.HardwareAddr(nil), v...)
	case unix.IFLA_LINK:
		l.peer = int(number32(v))
	case unix.IFLA_MASTER:
		l.master = int(number32(v))
	case unix.IFLA_GROUP:
		l.group = number32(v)
	case unix.IFLA_PROP_LIST:
		for kind, v := range attributes(v) {
			if kind == unix.IFLA_ALT_IFNAME {
				l.altnames = append(l.altnames, text(v))
			}
		}
	case unix.IFLA_AF_SPEC:
		l.setFamilies(v)
	case unix.IFLA_LINKINFO:
		l.setInfo(v)
	}
}

func (l *link) setFamilies(v []byte) {
	for family, v := range attributes(v) {
		if family != unix.AF_INET6 {
			continue
		}
		for kind, v := range attributes(v) {
			if kind == unix.IFLA_INET6_ADDR_GEN_MODE {
				l.addrGen = number8(v)
			}
		}
	}
}

func (l *link) setInfo(v []byte) {
	var data, portData []byte
	for kind, v := range attributes(v) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.kind = text(v)
		case unix.IFLA_INFO_DATA:
			data = v
		case unix.IFLA_INFO_SLAVE_DATA:
			portData = v
		}
	}
	for kind, v := range attributes(portData) {
		if kind == unix.IFLA_BRPORT_MODE {
			l.hairpin = number8(v) != 0
		}
	}
	if l.kind == kindBridge {
		l.setBridge(data)
	}
}

func (l *link) setBridge(data []byte) {
	for kind, v := range attributes(data) {
		switch kind {
		case unix.IFLA_BR_STP_STATE:
			l.stp = number32(v)
		case unix.IFLA_BR_MCAST_SNOOPING:
			l.snooping = number8(v)
		case unix.IFLA_BR_NF_CALL_IPTABLES:
			l.nfCall4 = number8(v)
		case unix.IFLA_BR_NF_CALL_IP6TABLES:
			l.nfCall6 = number8(v)
		}
	}
}
