package main

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// check compares a pod's attachment with the result of its ADD.
func check(c *call) (*types100.Result, error) {
	if err := c.needConf(); err != nil {
		return nil, err
	}
	e, err := expected(c)
	if err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, err, "CHECK needs the result of this attachment's ADD")
	}
	br, err := bridge.Open(c.conf.Bridge)
	if err != nil {
		return nil, tryLater(err)
	}
	defer br.Close()
	err = br.Check(e)
	var mismatch *bridge.MismatchError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &mismatch):
		return nil, failure(codeMismatch, err, "the pod must be made anew")
	}
	return nil, tryLater(err)
}

// tryLater says that nothing could be found out, which is no fault of the pod.
func tryLater(err error) error {
	return failure(types.ErrTryAgainLater, err, "nothing is known to be wrong with the pod; try again later")
}

// expected reads from the previous result how the attachment should be.
func expected(c *call) (bridge.Expected, error) {
	e := bridge.Expected{Owner: c.owner(), NetNS: c.args.Netns, Hairpin: c.conf.HairpinMode}
	r, err := readPrevResult(c.conf.PrevResult)
	if err != nil {
		return e, err
	}
	err = r.expect(&e)
	return e, err
}
