/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What of the graphics interfaces has separate calls: buffers of GL as before CUDA 3, known by their names, and
 * streams of EGL. A stream of which CUDA is the consumer is an object of the graphics driver's, by its name, and has
 * one frame; one of which CUDA is the producer takes frames that CUDA has made, and shows them to no program.
 * Versions with addresses of 32 bits are left out.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define BUFFERS 1024

static pthread_mutex_t buffers_mu = PTHREAD_MUTEX_INITIALIZER; /* taken before cuda_mu */
static CUgraphicsResource buffers[BUFFERS];

static CUresult with(unsigned buffer, CUresult (*act)(CUgraphicsResource *r, void *arg), void *arg)
{
	TRY(cuda_enter());
	NEED(buffer < BUFFERS);
	pthread_mutex_lock(&buffers_mu);
	CUresult ret = buffers[buffer] ? act(&buffers[buffer], arg) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&buffers_mu);
	return ret;
}

CUresult cuGLInit(void)
{
	return cuda_enter();
}

CUresult cuGLRegisterBufferObject(unsigned buffer)
{
	TRY(cuda_enter());
	NEED(buffer < BUFFERS);
	pthread_mutex_lock(&buffers_mu);
	CUresult ret = buffers[buffer] ? CUDA_ERROR_INVALID_VALUE : cuGraphicsGLRegisterBuffer(&buffers[buffer], buffer, 0);
	pthread_mutex_unlock(&buffers_mu);
	return ret;
}

struct place {
	CUdeviceptr *ptr;
	size_t *bytes;
};

static CUresult map(CUgraphicsResource *r, void *arg)
{
	struct place *p = arg;
	CUdeviceptr ptr;
	size_t bytes;
	TRY(cuGraphicsMapResources(1, r, NULL));
	TRY(cuGraphicsResourceGetMappedPointer_v2(&ptr, &bytes, *r));
	if (p->ptr)
		*p->ptr = ptr;
	if (p->bytes)
		*p->bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUgraphicsResource *r, void *arg)
{
	(void)arg;
	return cuGraphicsUnmapResources(1, r, NULL);
}

static CUresult unlist(CUgraphicsResource *r, void *arg)
{
	(void)arg;
	TRY(cuGraphicsUnregisterResource(*r));
	*r = NULL;
	return CUDA_SUCCESS;
}

static CUresult nothing(CUgraphicsResource *r, void *arg)
{
	(void)r;
	(void)arg;
	return CUDA_SUCCESS;
}

CUresult cuGLMapBufferObject_v2(CUdeviceptr *ptr, size_t *bytes, unsigned buffer)
{
	return with(buffer, map, &(struct place){ ptr, bytes });
}

CUresult cuGLMapBufferObject_v2_ptds(CUdeviceptr *ptr, size_t *bytes, unsigned buffer)
{
	return cuGLMapBufferObject_v2(ptr, bytes, buffer);
}

CUresult cuGLMapBufferObjectAsync_v2(CUdeviceptr *ptr, size_t *bytes, unsigned buffer, CUstream stream)
{
	(void)stream; /* nothing takes time */
	return cuGLMapBufferObject_v2(ptr, bytes, buffer);
}

CUresult cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr *ptr, size_t *bytes, unsigned buffer, CUstream stream)
{
	return cuGLMapBufferObjectAsync_v2(ptr, bytes, buffer, stream);
}

CUresult cuGLUnmapBufferObject(unsigned buffer)
{
	return with(buffer, unmap, NULL);
}

CUresult cuGLUnmapBufferObjectAsync(unsigned buffer, CUstream stream)
{
	(void)stream;
	return cuGLUnmapBufferObject(buffer);
}

CUresult cuGLUnregisterBufferObject(unsigned buffer)
{
	return with(buffer, unlist, NULL);
}

CUresult cuGLSetBufferObjectMapFlags(unsigned buffer, unsigned flags)
{
	NEED(flags <= 2);
	return with(buffer, nothing, NULL);
}

struct CUeglStreamConnection_st {
	bool producer, busy; /* a frame is with the consumer */
	void *name;
	CUgraphicsResource resource;
	CUeglFrame frame;
};

static CUresult connect_to(CUeglStreamConnection *connection, void *stream, bool producer)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(connection && stream);
	CUeglStreamConnection c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->producer = producer;
	c->name = stream;
	*connection = c;
	return CUDA_SUCCESS;
}

/* The connection of a call, of which a frame is away, or is not. */
static CUresult find(CUeglStreamConnection *connection, bool producer, bool busy)
{
	TRY(cuda_enter());
	NEED(connection && *connection && (*connection)->producer == producer);
	return (*connection)->busy == busy ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

static CUresult disconnect(CUeglStreamConnection *connection, bool producer)
{
	TRY(cuda_enter());
	NEED(connection && *connection && (*connection)->producer == producer);
	if ((*connection)->resource)
		TRY(cuGraphicsUnregisterResource((*connection)->resource));
	free(*connection);
	*connection = NULL;
	return CUDA_SUCCESS;
}

CUresult cuEGLStreamConsumerConnect(CUeglStreamConnection *connection, void *stream)
{
	return connect_to(connection, stream, false);
}

CUresult cuEGLStreamConsumerConnectWithFlags(CUeglStreamConnection *connection, void *stream, unsigned flags)
{
	NEED(flags <= 1);
	return connect_to(connection, stream, false);
}

CUresult cuEGLStreamConsumerDisconnect(CUeglStreamConnection *connection)
{
	return disconnect(connection, false);
}

CUresult cuEGLStreamConsumerAcquireFrame(CUeglStreamConnection *connection, CUgraphicsResource *resource,
					 CUstream *stream,
					 unsigned microseconds)
{
	(void)stream;
	(void)microseconds; /* no other frame will come */
	TRY(find(connection, false, false));
	NEED(resource);
	CUeglStreamConnection c = *connection;
	TRY(cuGraphicsEGLRegisterImage(&c->resource, c->name, 0));
	TRY(cuGraphicsMapResources(1, &c->resource, NULL));
	c->busy = true;
	*resource = c->resource;
	return CUDA_SUCCESS;
}

CUresult cuEGLStreamConsumerReleaseFrame(CUeglStreamConnection *connection, CUgraphicsResource resource,
	CUstream *stream)
{
	(void)stream;
	TRY(find(connection, false, true));
	NEED(resource == (*connection)->resource);
	TRY(cuGraphicsUnregisterResource(resource));
	(*connection)->resource = NULL;
	(*connection)->busy = false;
	return CUDA_SUCCESS;
}

CUresult cuEGLStreamProducerConnect(CUeglStreamConnection *connection, void *stream, int width, int height)
{
	NEED(width >= 0 && height >= 0);
	return connect_to(connection, stream, true);
}

CUresult cuEGLStreamProducerDisconnect(CUeglStreamConnection *connection)
{
	return disconnect(connection, true);
}

CUresult cuEGLStreamProducerPresentFrame(CUeglStreamConnection *connection, CUeglFrame frame, CUstream *stream)
{
	(void)stream;
	TRY(find(connection, true, false));
	NEED(frame.frame.pPitch[0]);
	(*connection)->frame = frame;
	(*connection)->busy = true;
	return CUDA_SUCCESS;
}

CUresult cuEGLStreamProducerReturnFrame(CUeglStreamConnection *connection, CUeglFrame *frame, CUstream *stream)
{
	(void)stream;
	TRY(find(connection, true, true));
	NEED(frame);
	*frame = (*connection)->frame;
	(*connection)->busy = false;
	return CUDA_SUCCESS;
}
