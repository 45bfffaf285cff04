package bridge

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzAnswer feeds arbitrary bytes to everything that reads the kernel's
// answers: none of it may panic, or read on for ever.
func FuzzAnswer(f *testing.F) {
	link := linkMessage(unix.RTM_NEWLINK, 0, 3).attrText(unix.IFLA_IFNAME, "cbr0").attr32(unix.IFLA_MTU, 1500)
	link.nest(unix.IFLA_LINKINFO, func() {
		link.attrText(unix.IFLA_INFO_KIND, kindBridge)
		link.nest(unix.IFLA_INFO_DATA, func() { link.attr32(unix.IFLA_BR_STP_STATE, 1) })
	})
	f.Add(link.bytes(unix.NLM_F_MULTI, 1))
	f.Add((&message{kind: unix.NLMSG_ERROR, body: make([]byte, 20)}).bytes(0, 1))
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0})
	f.Add(make([]byte, 64))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var a answer
		_ = a.add(data, 1)
		for _, b := range append(a.objects, data) {
			if l, err := parseLink(b); err == nil {
				l.claims()
				l.isPort()
			}
			parseAddress(b, 1)
			parseRoute(b)
			_ = verdict(b, unix.NLM_F_ACK_TLVS)
		}
	})
}

func TestMalformedAnswersAreErrors(t *testing.T) {
	for name, data := range map[string][]byte{
		"a message longer than the datagram": {100, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		"a message shorter than its header":  {4, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
	} {
		if err := new(answer).add(data, 1); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseLink(make([]byte, 3)); !errors.Is(err, errMalformed) {
		t.Errorf("half a link: %v", err)
	}
}

// Replies to an earlier request, which was given up, are passed over.
func TestAnswersToOtherRequestsArePassedOver(t *testing.T) {
	old := (&message{kind: unix.NLMSG_ERROR, body: []byte{0xff, 0xff, 0xff, 0xff}}).bytes(0, 1)
	own := (&message{kind: unix.NLMSG_ERROR, body: make([]byte, 4)}).bytes(0, 2)
	var a answer
	if err := a.add(append(old, own...), 2); err != nil || !a.complete {
		t.Errorf("complete %t: %v", a.complete, err)
	}
}

func TestInterruptedDumpIsNoted(t *testing.T) {
	part := linkMessage(unix.RTM_NEWLINK, 0, 3).bytes(unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, 1)
	done := (&message{kind: unix.NLMSG_DONE, body: make([]byte, 4)}).bytes(unix.NLM_F_MULTI, 1)
	var a answer
	if err := a.add(append(part, done...), 1); err != nil || !a.complete || !a.interrupted || len(a.objects) != 1 {
		t.Errorf("%+v: %v", a, err)
	}
}

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{
		"5.4.0-150-generic": true, "4.19.0": true, "5.5.0": false, "5.15.0-91-generic": false, "6.1.0-18-amd64": false, "10.0": false, "odd": false, "": false,
	} {
		if got := olderThan(release, 5, 5); got != want {
			t.Errorf("olderThan(%q) = %t, want %t", release, got, want)
		}
	}
}
